//! Cookies, by which the active side of a connection proves its address (ROCE-194).

use core::hash::Hasher as _;
use core::net::IpAddr;

use dat_core::time::Instant;
use siphasher::sip::SipHasher24;

/// Microseconds of a window as a power of two: 16.8 s.
const WINDOW: u32 = 24;

/// Makes and checks the cookies of an adapter, without a record of them.
pub(super) struct Cookies {
    secret: [u8; 16],
}

impl Cookies {
    pub(super) const fn new(secret: [u8; 16]) -> Self {
        Self { secret }
    }

    /// Returns the cookie of an address for a service.
    pub(super) fn cookie(&self, source: IpAddr, service: u64, now: Instant) -> u64 {
        self.in_window(source, service, now.as_micros() >> WINDOW)
    }

    /// Returns true if a cookie is of this window or of the one before.
    pub(super) fn holds(&self, cookie: u64, source: IpAddr, service: u64, now: Instant) -> bool {
        let window = now.as_micros() >> WINDOW;
        let mut windows = [Some(window), window.checked_sub(1)].into_iter().flatten();
        windows.any(|window| self.in_window(source, service, window) == cookie)
    }

    fn in_window(&self, source: IpAddr, service: u64, window: u64) -> u64 {
        let source = match source {
            IpAddr::V4(source) => source.to_ipv6_mapped(),
            IpAddr::V6(source) => source,
        };
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        hasher.write(&source.octets());
        hasher.write_u64(service);
        hasher.write_u64(window);
        // 0 stands for none.
        hasher.finish().max(1)
    }
}
