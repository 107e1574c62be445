"""Layer 2 expressions: parse, check, print, evaluate; the terminals they are made of."""
