"""How well forecasts hold."""
