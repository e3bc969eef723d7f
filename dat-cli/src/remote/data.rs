//! The data of transfers: their content and their checksums.

use std::sync::atomic::AtomicU8;

use dat_core::sync::{load_bytes, store_bytes};

/// Fills memory with pseudorandom bytes, determined by the seed.
pub(crate) fn fill(memory: &[AtomicU8], seed: u64) {
    const BLOCK: usize = 1 << 16;
    let mut state = seed | 1;
    let mut block = vec![0_u8; BLOCK];
    for part in memory.chunks(BLOCK) {
        fill_block(&mut state, &mut block);
        store_bytes(part, block.get(..part.len()).unwrap_or_default());
    }
}

/// Fills a block with pseudorandom bytes; `state` is not 0.
pub(crate) fn fill_block(state: &mut u64, block: &mut [u8]) {
    for word in block.chunks_mut(8) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        for (to, from) in word.iter_mut().zip(state.to_le_bytes()) {
            *to = from;
        }
    }
}

/// Computes the checksum of memory.
pub(crate) fn checksum(memory: &[AtomicU8]) -> u128 {
    const BLOCK: usize = 1 << 18;
    let mut hash = twox_hash::XxHash3_128::new();
    let mut block = vec![0; BLOCK.min(memory.len())];
    for part in memory.chunks(BLOCK) {
        let bytes = block.get_mut(..part.len()).unwrap_or_default();
        load_bytes(part, bytes);
        hash.write(bytes);
    }
    hash.finish_128()
}
