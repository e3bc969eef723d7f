//! A backend and a driver that implement only the required functions.

use std::sync::Arc;
use std::task::Waker;

use dat_bench::{RingReceives, Wire};
use dat_core::backend::{
    Activity, Backend, BackendError, Count, DomainKey, HostDriver, NotLocal, QueuePairKey,
    ReceiveInfo, RequestKey, SharedReceiveQueueKey, WindowKey,
};
use dat_core::event::ThreadWait;

use super::cramped::{CheckResult, require};

const NOT_SUPPORTED: Option<BackendError> = Some(BackendError::NotSupported);

/// A driver that nobody can sleep on.
#[derive(Clone)]
struct Bare;

impl HostDriver for Bare {
    type Wait = ThreadWait;

    fn wait(&self) -> Result<ThreadWait, BackendError> {
        Err(BackendError::NotSupported)
    }
}

/// Checks the defaults, which refuse what a device lacks.
pub(super) fn check() -> CheckResult {
    driver()?;
    let wire = Wire::new();
    let mut ring = wire.device();
    let (domain, window) = (DomainKey(0), WindowKey(0));
    require(ring.create_window(domain).err() == NOT_SUPPORTED)?;
    ring.destroy_window(window);
    require(!ring.needs_renewal(window, true))?;
    let (srq, pair) = (SharedReceiveQueueKey(0), QueuePairKey(0));
    let created = ring.create_shared_receive_queue(1, domain, 1, 1);
    require(created.err() == NOT_SUPPORTED)?;
    let mut queue = RingReceives::new(Arc::default());
    let resized = ring.resize_shared_receive_queue(srq, &mut queue, 2);
    require(resized.err() == NOT_SUPPORTED)?;
    require(ring.arm_shared_receive_limit(srq, 1).err() == NOT_SUPPORTED)?;
    require(ring.shared_receive_available(srq).is_none())?;
    ring.destroy_shared_receive_queue(srq, queue);
    require(ring.set_high_watermarks(pair, None, None).is_ok())?;
    for (soft, hard) in [(Some(1), None), (None, Some(1))] {
        let set = ring.set_high_watermarks(pair, soft, hard);
        require(set.err() == NOT_SUPPORTED)?;
    }
    require(ring.receive_info(pair) == ReceiveInfo::default())?;
    require(ring.is_proven(RequestKey(0)))
}

fn driver() -> CheckResult {
    require(Bare.connection_wait().err() == NOT_SUPPORTED)?;
    let before = Bare.now();
    require(Bare.now() >= before)?;
    require(!Bare.wake_on_events(Waker::noop().clone()))?;
    require(!Bare.before_sleep())?;
    require(Bare.act(before) == Activity::default())?;
    require(!Bare.acts_after_posts())?;
    let mut counts = 0;
    Bare.counts(&mut |_, _| counts += 1);
    require(counts == 0)?;
    require(Count::Posts.to_string() == "posts")?;
    require(Bare.refused_send().is_none())?;
    require(Bare.not_local().is_none())?;
    let reasons = [
        NotLocal::OtherHost,
        NotLocal::Nobody,
        NotLocal::OtherUser,
        NotLocal::Silent,
        NotLocal::Refused,
        NotLocal::Descriptors,
        NotLocal::Memory,
        NotLocal::Full,
        NotLocal::System,
        NotLocal::Required,
        NotLocal::Taken,
    ];
    // Each reason has a text and a remedy of its own.
    for (index, reason) in reasons.iter().enumerate() {
        let others = reasons.iter().take(index);
        for other in others {
            require(reason.to_string() != other.to_string())?;
            require(reason.remedy() != other.remedy())?;
        }
    }
    Ok(())
}
