"""What every form of process and every belief answers, whatever it is made of."""
