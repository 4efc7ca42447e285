"""The rational-factor forms: bases, couplings, forms over them, and their beliefs."""
