//! Memory of a peer, as a value.

use std::fmt;
use std::ops::{Bound, RangeBounds};

use bitflags::bitflags;
use dat_core::flags::MemoryPrivileges;
use dat_core::memory::RmrTriplet;
use dat_core::{Cause, Parameter};

use crate::error::{Error, Result};

bitflags! {
    /// Rights of peers to a window.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// RDMA Reads.
        const READ = 1;
        /// RDMA Writes.
        const WRITE = 2;
    }
}

impl Access {
    /// Checks that all bits are known.
    ///
    /// # Errors
    /// INVALID_PARAMETER (`privileges`): one is not.
    pub(crate) fn check(self) -> dat_core::Result<()> {
        match Self::from_bits(self.bits()) {
            Some(_) => Ok(()),
            None => Err(dat_core::Error::invalid_argument(3)
                .about(Parameter::Privileges)
                .because(Cause::UnknownFlags)),
        }
    }

    pub(crate) fn privileges(self) -> MemoryPrivileges {
        let mut privileges = MemoryPrivileges::empty();
        if self.contains(Self::READ) {
            privileges |= MemoryPrivileges::REMOTE_READ;
        }
        if self.contains(Self::WRITE) {
            privileges |= MemoryPrivileges::REMOTE_WRITE;
        }
        privileges
    }
}

/// A range of a peer's memory, with rights: a plain value to send in messages.
///
/// It comes from [`Window::remote`](crate::Window::remote) at the peer. Slicing checks bounds, and
/// operations check length and rights before anything is posted. The peer's device checks all of
/// it again.
///
/// ```
/// use dat_host::{Access, RemoteSlice};
///
/// # fn main() -> dat_host::Result<()> {
/// let all = RemoteSlice::new(7, 0x1000, 4096, Access::READ)?;
/// let part = all.slice(64..128)?;
/// assert_eq!((part.address(), part.len()), (0x1040, 64));
/// assert!(all.slice(64..4097).is_err());
/// assert_eq!(RemoteSlice::from_bytes(&part.to_bytes())?, part);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemoteSlice {
    context: u32,
    access: Access,
    address: u64,
    length: u64,
}

impl RemoteSlice {
    /// Length of the encoded form in bytes.
    pub const ENCODED: usize = 24;

    /// Creates a value from its parts.
    ///
    /// # Errors
    /// [`Error::Malformed`]: address plus length exceeds 2^64 - 1, or `access` has unknown bits.
    pub fn new(context: u32, address: u64, length: u64, access: Access) -> Result<Self> {
        if address.checked_add(length).is_none() {
            return Err(Error::Malformed("a range inside of the address space"));
        }
        if Access::from_bits(access.bits()).is_none() {
            return Err(Error::Malformed("known rights"));
        }
        Ok(Self {
            context,
            access,
            address,
            length,
        })
    }

    /// Returns the context that names the window at the peer.
    pub const fn context(self) -> u32 {
        self.context
    }

    /// Returns the rights.
    pub const fn access(self) -> Access {
        self.access
    }

    /// Returns the address of the first byte.
    pub const fn address(self) -> u64 {
        self.address
    }

    /// Returns the length in bytes.
    pub const fn len(self) -> u64 {
        self.length
    }

    /// Returns true if the length is 0.
    pub const fn is_empty(self) -> bool {
        self.length == 0
    }

    /// Returns a part of the range, in bytes from its start.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]: the part reaches outside, or ends before it starts.
    pub fn slice(self, range: impl RangeBounds<u64>) -> Result<Self> {
        let (start, length) = resolve_u64(range, self.length)?;
        Ok(Self {
            address: self.address + start,
            length,
            ..self
        })
    }

    /// Returns the encoded form: context, rights, address, length, all little-endian.
    pub fn to_bytes(self) -> [u8; Self::ENCODED] {
        let mut bytes = [0; Self::ENCODED];
        bytes[..4].copy_from_slice(&self.context.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.access.bits().to_le_bytes());
        bytes[8..16].copy_from_slice(&self.address.to_le_bytes());
        bytes[16..].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    /// Decodes the form of [`to_bytes`](Self::to_bytes), which must be all of `bytes`.
    ///
    /// # Errors
    /// [`Error::Malformed`]: not 24 bytes, unknown rights, or address plus length exceeds
    /// 2^64 - 1.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let bytes: &[u8; Self::ENCODED] = bytes
            .try_into()
            .map_err(|_| Error::Malformed("24 bytes of a remote slice"))?;
        let (words, _) = bytes.as_chunks::<8>();
        let [first, address, length] = words else {
            unreachable!("24 bytes are three words");
        };
        let first = u64::from_le_bytes(*first);
        let access = Access::from_bits_retain((first >> 32) as u32);
        let (address, length) = (u64::from_le_bytes(*address), u64::from_le_bytes(*length));
        Self::new(first as u32, address, length, access)
    }

    pub(crate) const fn triplet(self) -> RmrTriplet {
        RmrTriplet {
            context: self.context,
            address: self.address,
            length: self.length,
        }
    }
}

impl fmt::Debug for RemoteSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteSlice")
            .field("context", &format_args!("{:#x}", self.context))
            .field("access", &self.access)
            .field("address", &format_args!("{:#x}", self.address))
            .field("length", &self.length)
            .finish()
    }
}

impl From<RemoteSlice> for [u8; RemoteSlice::ENCODED] {
    fn from(remote: RemoteSlice) -> Self {
        remote.to_bytes()
    }
}

impl TryFrom<[u8; RemoteSlice::ENCODED]> for RemoteSlice {
    type Error = Error;

    fn try_from(bytes: [u8; Self::ENCODED]) -> Result<Self> {
        Self::from_bytes(&bytes)
    }
}

/// The encoded form as bytes.
#[cfg(feature = "serde")]
impl serde::Serialize for RemoteSlice {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_bytes().serialize(serializer)
    }
}

/// Refuses what [`RemoteSlice::from_bytes`] refuses.
#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for RemoteSlice {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = <[u8; Self::ENCODED]>::deserialize(deserializer)?;
        Self::from_bytes(&bytes).map_err(serde::de::Error::custom)
    }
}

/// Returns start and length of a range of `usize`.
pub(crate) fn resolve_range(
    range: impl RangeBounds<usize>,
    length: usize,
) -> Result<(usize, usize)> {
    let widen = |bound: Bound<&usize>| match bound {
        Bound::Included(&at) => Bound::Included(at as u64),
        Bound::Excluded(&at) => Bound::Excluded(at as u64),
        Bound::Unbounded => Bound::Unbounded,
    };
    let range = (widen(range.start_bound()), widen(range.end_bound()));
    let (start, length) = resolve_u64(range, length as u64)?;
    Ok((start as usize, length as usize))
}

/// Returns start and length of a range in memory of `length` bytes.
///
/// # Errors
/// [`Error::OutOfRange`]: it reaches outside, or ends before it starts.
fn resolve_u64(range: impl RangeBounds<u64>, length: u64) -> Result<(u64, u64)> {
    let start = match range.start_bound() {
        Bound::Included(&start) => Some(start),
        Bound::Excluded(&start) => start.checked_add(1),
        Bound::Unbounded => Some(0),
    };
    let end = match range.end_bound() {
        Bound::Included(&end) => end.checked_add(1),
        Bound::Excluded(&end) => Some(end),
        Bound::Unbounded => Some(length),
    };
    match (start, end) {
        (Some(start), Some(end)) if start <= end && end <= length => Ok((start, end - start)),
        (start, end) => Err(Error::OutOfRange {
            start: start.unwrap_or(u64::MAX),
            end: end.unwrap_or(u64::MAX),
            length,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> RemoteSlice {
        RemoteSlice::new(0x0102_0304, 0x1000, 100, Access::READ | Access::WRITE).unwrap()
    }

    #[test]
    fn the_encoded_form_is_fixed() {
        let bytes = sample().to_bytes();
        let expected = [
            4, 3, 2, 1, 3, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(bytes, expected);
        assert_eq!(RemoteSlice::from_bytes(&bytes).unwrap(), sample());
    }

    #[test]
    fn the_decoder_refuses_unknown_rights_overflow_and_other_lengths() {
        let bytes = sample().to_bytes();
        for bit in 2..32 {
            let mut wrong = bytes;
            wrong[4 + bit / 8] |= 1 << (bit % 8);
            assert!(matches!(
                RemoteSlice::from_bytes(&wrong),
                Err(Error::Malformed(_))
            ));
        }
        let mut wrong = bytes;
        wrong[8..16].copy_from_slice(&(u64::MAX - 99).to_le_bytes());
        assert!(RemoteSlice::from_bytes(&wrong).is_err());
        wrong[8..16].copy_from_slice(&(u64::MAX - 100).to_le_bytes());
        assert!(RemoteSlice::from_bytes(&wrong).is_ok());
        assert!(RemoteSlice::from_bytes(&bytes[..23]).is_err());
        assert!(RemoteSlice::from_bytes(&[bytes.as_slice(), &[0]].concat()).is_err());
    }

    #[test]
    fn slices_stay_inside() {
        let all = sample();
        assert_eq!(all.slice(..).unwrap(), all);
        assert_eq!(all.slice(100..).unwrap().len(), 0);
        assert_eq!(all.slice(10..=19).unwrap().len(), 10);
        let part = all.slice(10..20).unwrap().slice(5..).unwrap();
        assert_eq!((part.address(), part.len()), (0x100F, 5));
        #[expect(clippy::reversed_empty_ranges, reason = "a range to refuse")]
        let reversed = all.slice(20..10);
        for refused in [
            all.slice(..101),
            all.slice(101..),
            all.slice(..=100),
            all.slice(..=u64::MAX),
            reversed,
        ] {
            assert!(matches!(
                refused,
                Err(Error::OutOfRange { length: 100, .. })
            ));
        }
    }

    #[test]
    fn the_error_of_a_range_names_its_cause() {
        let text = |range: (Bound<u64>, Bound<u64>)| sample().slice(range).unwrap_err().to_string();
        let (from, to) = (Bound::Included, Bound::Excluded);
        assert_eq!(
            text((from(20), to(10))),
            "the range starts at 20, after its end at 10"
        );
        assert_eq!(
            text((from(90), to(101))),
            "the range ends at 101, the memory at 100"
        );
        assert_eq!(
            text((from(101), Bound::Unbounded)),
            "the range starts at 101, the memory ends at 100"
        );
    }

    #[cfg(feature = "serde")]
    #[test]
    fn serde_uses_the_encoded_form_and_its_checks() {
        let text = serde_json::to_string(&sample()).unwrap();
        assert_eq!(
            serde_json::from_str::<RemoteSlice>(&text).unwrap(),
            sample()
        );
        let wrong = text.replacen("[4,3,2,1,3", "[4,3,2,1,7", 1);
        assert_ne!(wrong, text);
        assert!(serde_json::from_str::<RemoteSlice>(&wrong).is_err());
    }
}
