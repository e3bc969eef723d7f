//! Definition of storage with named numbers of slots.

/// Defines storage for one interface adapter, with a number of slots of each kind.
///
/// The struct holds an array for each field of [`Storage`](crate::Storage). Its `new` is usable in
/// a `static`; its `lend` returns the [`Storage`](crate::Storage) for an adapter.
///
/// ```
/// use dat_core::{Counts, Ia, Result, backend::Backend, sync::NoLock};
///
/// dat_core::define_storage! {
///     /// Storage of an adapter that takes no connection requests.
///     pub struct Slots<B: Backend> for B, NoLock {
///         protection_zones: 1,
///         local_regions: 4,
///         event_dispatchers: 2,
///         endpoints: 2,
///         events: 16,
///         records: 2 * 8,
///         ..Counts::NONE
///     }
/// }
///
/// fn open<B: Backend>(backend: B, storage: &mut Slots<B>) -> Result<()> {
///     let ia = Ia::open(backend, storage.lend(), 8).map_err(|refused| refused.error)?;
///     let pz = ia.pz_create()?;
///     ia.pz_free(pz)
/// }
/// ```
///
/// Numbers are those of [`Counts`](crate::Counts), in any order. After `for` come the types of
/// backend and lock. Two adapters and their storage fit in one struct. In its module, the name of
/// the struct is also a constant with these numbers.
///
/// Storage of more than some 100 KiB belongs into a `static`. It overflows a stack, and so does
/// `Box::new`, which builds it on the stack first. A host that needs thousands of objects lends a
/// [`Storage`](crate::Storage) of slices of `Vec`s.
///
/// # Without initial values
/// With `uninit struct`, a `static` takes no space in the program image. It can be lent once, and
/// `lend` writes the initial values:
///
/// ```
/// # use dat_core::{Counts, Storage, backend::Backend, sync::NoLock};
/// dat_core::define_storage! {
///     uninit struct Slots<B: Backend> for B, NoLock {
///         event_dispatchers: 1,
///         events: 4,
///         ..Counts::NONE
///     }
/// }
/// fn lend<B: Backend>(slots: &'static mut Slots<B>) -> Storage<'static, B, NoLock> {
///     slots.lend()
/// }
/// ```
///
/// # Mistakes
/// These do not compile: a kind without a number, unless `..Counts::NONE` follows,
///
/// ```compile_fail,E0063
/// # use dat_core::{backend::Backend, sync::NoLock};
/// dat_core::define_storage! {
///     struct Slots<B: Backend> for B, NoLock { event_dispatchers: 1, events: 4 }
/// }
/// ```
///
/// an unknown kind,
///
/// ```compile_fail,E0560
/// # use dat_core::{Counts, backend::Backend, sync::NoLock};
/// dat_core::define_storage! {
///     struct Slots<B: Backend> for B, NoLock {
///         event_dispatcher: 1,
///         events: 4,
///         ..Counts::NONE
///     }
/// }
/// ```
///
/// more slots than handles have indices,
///
/// ```compile_fail,E0080
/// # use dat_core::{Counts, backend::Backend, sync::NoLock};
/// dat_core::define_storage! {
///     struct Slots<B: Backend> for B, NoLock {
///         event_dispatchers: 1,
///         events: 4,
///         protection_zones: 65_537,
///         ..Counts::NONE
///     }
/// }
/// ```
///
/// an adapter without the dispatcher of its own or its event,
///
/// ```compile_fail,E0080
/// # use dat_core::{Counts, backend::Backend, sync::NoLock};
/// dat_core::define_storage! {
///     struct Slots<B: Backend> for B, NoLock { event_dispatchers: 1, ..Counts::NONE }
/// }
/// ```
///
/// regions or shared receive queues without a zone,
///
/// ```compile_fail,E0080
/// # use dat_core::{Counts, backend::Backend, sync::NoLock};
/// dat_core::define_storage! {
///     struct Slots<B: Backend> for B, NoLock {
///         event_dispatchers: 1,
///         events: 4,
///         local_regions: 1,
///         ..Counts::NONE
///     }
/// }
/// ```
///
/// records without a queue that could take them,
///
/// ```compile_fail,E0080
/// # use dat_core::{Counts, backend::Backend, sync::NoLock};
/// dat_core::define_storage! {
///     struct Slots<B: Backend> for B, NoLock {
///         event_dispatchers: 1,
///         events: 4,
///         records: 8,
///         ..Counts::NONE
///     }
/// }
/// ```
///
/// and service points without connection requests, or the reverse.
///
/// ```compile_fail,E0080
/// # use dat_core::{Counts, backend::Backend, sync::NoLock};
/// dat_core::define_storage! {
///     struct Slots<B: Backend> for B, NoLock {
///         event_dispatchers: 1,
///         events: 4,
///         public_service_points: 1,
///         ..Counts::NONE
///     }
/// }
/// ```
#[macro_export]
macro_rules! define_storage {
    (@kinds $form:ident $header:tt ($backend:ty, $lock:ty)) => {
        $crate::define_storage! {
            @$form $header ($backend, $lock)
            protection_zones: $crate::memory::PzSlot,
            local_regions: $crate::memory::LmrSlot,
            remote_regions: $crate::memory::RmrSlot<$lock>,
            event_dispatchers: $crate::event::EvdSlot<
                <$backend as $crate::backend::Backend>::CompletionQueue,
                $lock,
            >,
            notification_objects: $crate::event::CnoSlot<$lock>,
            endpoints: $crate::endpoint::EndpointSlot<
                <$backend as $crate::backend::Backend>::SendQueue,
                <$backend as $crate::backend::Backend>::ReceiveQueue,
                $lock,
            >,
            shared_receive_queues: $crate::endpoint::SrqSlot<
                <$backend as $crate::backend::Backend>::SharedReceiveQueue,
                $lock,
            >,
            public_service_points: $crate::connection::PspSlot,
            reserved_service_points: $crate::connection::RspSlot,
            connection_requests: $crate::connection::CrSlot,
            events: $crate::event::EventSlot,
            records: $crate::RecordSlot,
        }
    };
    (@arrays (
        [$($attribute:tt)*] [$vis:vis] $name:ident
        [$($parameter:ident: $bound:path),*] { $($counts:tt)* }
    ) ($backend:ty, $lock:ty) $($kind:ident: $slot:ty,)*) => {
        // The struct has no value of its name.
        #[expect(non_upper_case_globals, reason = "has the name of the struct")]
        const $name: $crate::Counts = $crate::define_storage!(@checked { $($counts)* });

        $($attribute)*
        $vis struct $name<$($parameter: $bound),*> {
            $($kind: [$slot; $name.$kind],)*
        }

        impl<$($parameter: $bound),*> $name<$($parameter),*> {
            /// Creates empty storage; usable in a `static`.
            $vis const fn new() -> Self {
                Self {
                    $($kind: [const { <$slot>::EMPTY }; $name.$kind],)*
                }
            }

            /// Lends the arrays to an interface adapter.
            $vis fn lend(&mut self) -> $crate::Storage<'_, $backend, $lock> {
                $crate::Storage {
                    $($kind: self.$kind.as_mut_slice().into(),)*
                    fresh: false,
                }
            }
        }

        impl<$($parameter: $bound),*> ::core::default::Default for $name<$($parameter),*> {
            fn default() -> Self {
                Self::new()
            }
        }
    };
    (@memory (
        [$($attribute:tt)*] [$vis:vis] $name:ident
        [$($parameter:ident: $bound:path),*] { $($counts:tt)* }
    ) ($backend:ty, $lock:ty) $($kind:ident: $slot:ty,)*) => {
        #[expect(non_upper_case_globals, reason = "has the name of the struct")]
        const $name: $crate::Counts = $crate::define_storage!(@checked { $($counts)* });

        $($attribute)*
        $vis struct $name<$($parameter: $bound),*> {
            $($kind: $crate::sync::SlotMemory<$slot, { $name.$kind }>,)*
        }

        impl<$($parameter: $bound),*> $name<$($parameter),*> {
            /// Creates uninitialised storage; usable in a `static`.
            $vis const fn new() -> Self {
                Self {
                    $($kind: $crate::sync::SlotMemory::new(),)*
                }
            }

            /// Initialises all slots as empty, and lends them to an interface adapter.
            $vis fn lend(&'static mut self) -> $crate::Storage<'static, $backend, $lock> {
                $crate::Storage {
                    $($kind: self.$kind.fill(|| <$slot>::EMPTY).as_mut_slice().into(),)*
                    fresh: true,
                }
            }
        }

        impl<$($parameter: $bound),*> ::core::default::Default for $name<$($parameter),*> {
            fn default() -> Self {
                Self::new()
            }
        }
    };
    (@checked { $($counts:tt)* }) => {{
        let counts = $crate::Counts { $($counts)* };
        if let ::core::option::Option::Some(mistake) = counts.mistake() {
            ::core::panic!("{}", mistake);
        }
        counts
    }};
    (
        $(#[$attribute:meta])*
        $vis:vis uninit struct $name:ident $(<$($parameter:ident: $bound:path),+ $(,)?>)?
        for $backend:ty, $lock:ty { $($counts:tt)* }
    ) => {
        $crate::define_storage! {
            @kinds memory (
                [$(#[$attribute])*] [$vis] $name [$($($parameter: $bound),+)?] { $($counts)* }
            ) ($backend, $lock)
        }
    };
    (
        $(#[$attribute:meta])*
        $vis:vis struct $name:ident $(<$($parameter:ident: $bound:path),+ $(,)?>)?
        for $backend:ty, $lock:ty { $($counts:tt)* }
    ) => {
        $crate::define_storage! {
            @kinds arrays (
                [$(#[$attribute])*] [$vis] $name [$($($parameter: $bound),+)?] { $($counts)* }
            ) ($backend, $lock)
        }
    };
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::boxed::Box;

    use crate::Counts;
    use crate::adapter::Ia;
    use crate::flags::EvdFlags;
    use crate::sync::{NoLock, RawLock};
    use crate::testing::TestBackend;

    crate::define_storage! {
        /// Every number differs from the others.
        struct Large<L: RawLock> for TestBackend, L {
            records: 12,
            events: 11,
            connection_requests: 10,
            reserved_service_points: 9,
            public_service_points: 8,
            shared_receive_queues: 7,
            endpoints: 6,
            notification_objects: 5,
            event_dispatchers: 4,
            remote_regions: 3,
            local_regions: 2,
            protection_zones: 1,
        }
    }

    crate::define_storage! {
        uninit struct Small for TestBackend, NoLock {
            event_dispatchers: 1,
            events: 3,
            protection_zones: 2,
            ..Counts::NONE
        }
    }

    #[test]
    fn each_kind_has_its_number_of_slots() {
        let mut large = Large::<NoLock>::new();
        let lent = large.lend();
        let lengths = [
            lent.protection_zones.len(),
            lent.local_regions.len(),
            lent.remote_regions.len(),
            lent.event_dispatchers.len(),
            lent.notification_objects.len(),
            lent.endpoints.len(),
            lent.shared_receive_queues.len(),
            lent.public_service_points.len(),
            lent.reserved_service_points.len(),
            lent.connection_requests.len(),
            lent.events.len(),
            lent.records.len(),
        ];
        assert_eq!(lengths, core::array::from_fn(|index| index + 1));
        assert!(!lent.fresh);
        let small = Box::leak(Box::new(Small::new())).lend();
        assert_eq!((small.events.len(), small.local_regions.len()), (3, 0));
        assert!(small.fresh);
    }

    /// Two adapters and the storage of both, in one struct.
    struct Both {
        first: Large<NoLock>,
        second: Small,
    }

    #[test]
    fn the_storage_of_two_adapters_is_one_value() {
        let both = Box::leak(Box::new(Both {
            first: Large::new(),
            second: Small::new(),
        }));
        let open = |storage| Ia::open(TestBackend::default(), storage, 3).unwrap();
        let adapters = [open(both.first.lend()), open(both.second.lend())];
        let zones = adapters.each_ref().map(|ia| ia.pz_create().unwrap());
        assert_ne!(zones[0], zones[1]);
        assert!(adapters[0].evd_create(3, None, EvdFlags::SOFTWARE).is_ok());
        assert!(adapters[1].evd_create(3, None, EvdFlags::SOFTWARE).is_err());
        assert!(adapters[0].pz_create().is_err());
        assert!(adapters[1].pz_create().is_ok());
    }

    #[test]
    fn mistaken_numbers_are_named() {
        let least = Counts {
            event_dispatchers: 1,
            events: 1,
            ..Counts::NONE
        };
        assert_eq!(least.mistake(), None);
        let mistakes = [
            Counts::NONE,
            Counts {
                protection_zones: (1 << 16) + 1,
                ..least
            },
            Counts {
                endpoints: crate::id::LAST_INDEX as usize + 2,
                ..least
            },
            Counts { events: 0, ..least },
            Counts {
                remote_regions: 1,
                ..least
            },
            Counts {
                records: 1,
                ..least
            },
            Counts {
                connection_requests: 1,
                ..least
            },
            Counts {
                reserved_service_points: 1,
                ..least
            },
        ];
        for counts in mistakes {
            assert!(counts.mistake().is_some(), "{counts:?}");
        }
    }
}
