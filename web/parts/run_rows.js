// The tensors of a run: one array each, as `runs tensors` tells them.
export const SEQ = 0, NAME = 1, ROLE = 2, STEP = 3, HIT = 4, PASS = 5, DTYPE = 6, SHAPE = 7, KEPT = 8, SECS = 9, MIN = 10, MAX = 11, MEAN = 12, STD = 13, ODD = 14;
