//! A close while another thread makes objects.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use crate::adapter::Ia;
use crate::error::ErrorKind;
use crate::flags::CloseFlags;
use crate::sync::HostLock;
use crate::testing::{Slots, TestBackend};

/// A close destroys all objects that another thread creates meanwhile, in any interleaving.
///
/// Spec: IAC-01, IAC-05
#[test]
fn a_close_leaves_nothing_of_what_others_make_meanwhile() {
    for round in 0..200 {
        let device = TestBackend::default();
        let mut storage = Slots::<HostLock>::new();
        let ia = Ia::open(device.clone(), storage.lend(), 1).unwrap();
        let made = AtomicU32::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                let error = loop {
                    match ia.pz_create() {
                        Ok(_) => made.fetch_add(1, Ordering::Relaxed),
                        Err(error) if error.kind() == ErrorKind::InsufficientResources => {
                            made.fetch_add(1, Ordering::Relaxed)
                        }
                        Err(error) => break error,
                    };
                };
                assert_eq!(error.kind(), ErrorKind::InvalidHandle);
            });
            while made.load(Ordering::Relaxed) < round % 6 {
                core::hint::spin_loop();
            }
            assert!(ia.shut(CloseFlags::Abrupt).is_ok());
        });
        assert_eq!(device.objects(), [0; 7], "{round}");
    }
}
