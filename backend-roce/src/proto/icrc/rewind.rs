//! Rewinding of a CRC-32 state through zero bytes.

const POLYNOMIAL: u32 = 0xEDB8_8320;

/// Powers of two of bytes that a datagram can have: up to 2^17 - 1.
const POWERS: usize = 17;

/// A linear map of a state: the image of each bit.
type Matrix = [u32; 32];

/// `REWINDS[k]` rewinds a state through 2^k zero bytes.
static REWINDS: [Matrix; POWERS] = {
    let mut matrices = [[0; 32]; POWERS];
    matrices[0] = one_byte();
    let mut power = 1;
    while power < POWERS {
        matrices[power] = squared(&matrices[power - 1]);
        power += 1;
    }
    matrices
};

/// Returns the map that rewinds a state through one zero byte.
const fn one_byte() -> Matrix {
    let mut matrix = [0; 32];
    let mut bit = 0;
    while bit < 32 {
        let mut state = 1_u32 << bit;
        let mut step = 0;
        while step < 8 {
            state = if state & 1 << 31 != 0 {
                (state ^ POLYNOMIAL) << 1 | 1
            } else {
                state << 1
            };
            step += 1;
        }
        matrix[bit] = state;
        bit += 1;
    }
    matrix
}

const fn squared(matrix: &Matrix) -> Matrix {
    let mut square = [0; 32];
    let mut bit = 0;
    while bit < 32 {
        square[bit] = apply(matrix, matrix[bit]);
        bit += 1;
    }
    square
}

const fn apply(matrix: &Matrix, state: u32) -> u32 {
    let mut image = 0;
    let mut bit = 0;
    while bit < 32 {
        // All ones if the bit is set: a table walk without a branch.
        image ^= matrix[bit] & (state >> bit & 1).wrapping_neg();
        bit += 1;
    }
    image
}

/// Rewinds `state` through `bytes` zero bytes, fewer than 2^17.
pub(super) fn rewind(state: u32, bytes: usize) -> u32 {
    let powers = REWINDS.iter().enumerate();
    powers
        .filter(|(power, _)| bytes >> power & 1 != 0)
        .fold(state, |state, (_, matrix)| apply(matrix, state))
}
