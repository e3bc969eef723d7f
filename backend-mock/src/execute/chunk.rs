//! Chunks of data that move at once.

use dat_core::backend::{RemoteRange, Segment};

/// Bytes that move at once, in less than 0.1 ms.
///
/// With smaller chunks, large transfers are slower.
pub(crate) const CHUNK: u32 = 1 << 20;

/// Returns the number of bytes that move at once.
///
/// It is the whole length if source and destination overlap, because a chunk could overwrite the
/// source of the next one.
pub(crate) fn length(total: u32, from: &[Segment], to: &[Segment]) -> u32 {
    if total > CHUNK && overlap(from, to) {
        total
    } else {
        CHUNK
    }
}

/// Returns the remote side of an operation as a segment.
pub(crate) fn segment(range: RemoteRange, length: u32) -> Segment {
    Segment {
        address: range.address,
        length,
        key: range.key,
    }
}

/// Returns true if a segment of one list shares bytes with one of the other.
fn overlap(some: &[Segment], others: &[Segment]) -> bool {
    let shares = |a: &Segment, b: &Segment| {
        a.address < b.address.saturating_add(u64::from(b.length))
            && b.address < a.address.saturating_add(u64::from(a.length))
    };
    some.iter().any(|a| others.iter().any(|b| shares(a, b)))
}

/// Returns the bytes of `segments` after `skip` bytes, at most `count`, as segments.
pub(crate) fn part_of(
    segments: &[Segment],
    mut skip: u32,
    mut count: u32,
) -> impl Iterator<Item = Segment> {
    segments.iter().filter_map(move |segment| {
        let skipped = skip.min(segment.length);
        let length = count.min(segment.length - skipped);
        skip -= skipped;
        count -= length;
        (length > 0).then(|| Segment {
            address: segment.address.wrapping_add(u64::from(skipped)),
            length,
            ..*segment
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(address: u64, length: u32) -> Segment {
        Segment {
            address,
            length,
            key: 1,
        }
    }

    #[test]
    fn parts_of_segments() {
        let list = [segment(100, 5), segment(300, 0), segment(200, 7)];
        let part = |skip, count| part_of(&list, skip, count).collect::<Vec<_>>();
        assert_eq!(part(0, 12), [segment(100, 5), segment(200, 7)]);
        assert_eq!(part(0, u32::MAX), part(0, 12));
        assert_eq!(part(3, 4), [segment(103, 2), segment(200, 2)]);
        assert_eq!(part(5, 1), [segment(200, 1)]);
        assert_eq!(part(11, 9), [segment(206, 1)]);
        assert_eq!(part(12, 9), []);
        assert_eq!(part(0, 0), []);
        assert_eq!(part(u32::MAX, u32::MAX), []);
    }

    #[test]
    fn overlapping_memory_moves_in_one_chunk() {
        let (large, end) = (CHUNK + 1, u64::from(CHUNK + 1));
        let from = [segment(0, 10), segment(1000, large)];
        assert_eq!(length(large, &from, &[segment(10, 990)]), CHUNK);
        assert_eq!(length(large, &from, &[segment(10, 991)]), large);
        assert_eq!(length(large, &from, &[segment(1000 + end, 5)]), CHUNK);
        assert_eq!(length(large, &from, &[segment(999 + end, 5)]), large);
        assert_eq!(length(large, &from, &[segment(u64::MAX, 5)]), CHUNK);
        assert_eq!(length(20, &from, &from), CHUNK, "in one chunk anyway");
    }
}
