//! Values on the stacks of contexts, each found by its context.

use core::ptr;

use super::{Mutex, RawLock};

/// Identity of a context: of a thread, with the feature `std`.
///
/// Without it, contexts are not told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Context(usize);

impl Context {
    /// Returns the context of the caller.
    ///
    /// Does not use `std::thread::current`: in a library that was loaded late, the first use of a
    /// thread-local value needs memory, and ends the process if there is none.
    #[cfg(all(feature = "std", unix, not(loom)))]
    fn this() -> Self {
        #[expect(unsafe_code)]
        // SAFETY: the C library has this function, and `pthread_t` is as large as an address.
        unsafe extern "C" {
            safe fn pthread_self() -> usize;
        }
        Self(pthread_self())
    }

    /// Returns the context of the caller.
    #[cfg(all(feature = "std", not(all(unix, not(loom)))))]
    fn this() -> Self {
        std::thread_local! {
            static HERE: u8 = const { 0 };
        }
        HERE.with(|here| Self(ptr::from_ref(here).addr()))
    }

    /// Returns the one context.
    #[cfg(not(feature = "std"))]
    const fn this() -> Self {
        Self(0)
    }
}

/// Value on the stack of a context.
struct Frame<T> {
    context: Context,
    value: T,
    /// The next frame in the list, or null.
    next: *mut Self,
}

/// The first frame of the list, or null.
struct First<T>(*mut Frame<T>);

#[expect(unsafe_code)]
// SAFETY: only the holder of the lock accesses frames, on any thread, and hands out `&mut T`.
unsafe impl<T: Send> Send for First<T> {}

impl<T> First<T> {
    /// Removes a frame, if it is in the list.
    fn remove(&mut self, own: *mut Frame<T>) {
        let mut link = &raw mut self.0;
        #[expect(unsafe_code)]
        // SAFETY: the lock is held, as `self` proves. Frames live as long as they are in the list.
        unsafe {
            while !(*link).is_null() {
                if *link == own {
                    *link = (*own).next;
                    return;
                }
                link = &raw mut (**link).next;
            }
        }
    }
}

/// Frames of contexts.
pub(crate) struct Frames<L, T>(Mutex<L, First<T>>);

impl<L: RawLock, T: Default> Frames<L, T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(First(ptr::null_mut())))
    }

    /// Runs `f` on the value of this context; `None` if it has no frame.
    ///
    /// `f` must take no lock and have no frame.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        let own = Context::this();
        self.0.with(|first| {
            let mut next = first.0;
            #[expect(unsafe_code)]
            // SAFETY: frames live as long as they are in the list. The lock is held, so there is no
            // other reference to a value.
            unsafe {
                while !next.is_null() && (*next).context != own {
                    next = (*next).next;
                }
                next.as_mut().map(|frame| f(&mut frame.value))
            }
        })
    }

    /// Gives this context a frame for a loop: `work` on an item, then `next` on the value of the
    /// frame and the result, until there is no further item.
    ///
    /// The frame leaves the list in the step that finds no item. `next` must take no lock.
    pub(crate) fn run<I, R>(
        &self,
        mut item: I,
        mut work: impl FnMut(I) -> R,
        mut next: impl FnMut(&mut T, R) -> Option<I>,
    ) {
        let mut frame = Frame {
            context: Context::this(),
            value: T::default(),
            next: ptr::null_mut(),
        };
        // From here on, the frame is accessed by this pointer only.
        let own = &raw mut frame;
        let entered = Entered { frames: self, own };
        self.0.with(|first| {
            #[expect(unsafe_code)]
            // SAFETY: the frame lives until the function returns, and `entered` removes it before.
            // Nobody else has the pointer yet.
            unsafe {
                (*own).next = first.0;
            }
            first.0 = own;
        });
        loop {
            let done = work(item);
            let found = self.0.with(|first| {
                #[expect(unsafe_code)]
                // SAFETY: the frame lives, and the lock is held, so there is no other reference.
                let found = next(unsafe { &mut (*own).value }, done);
                if found.is_none() {
                    first.remove(own);
                }
                found
            });
            match found {
                Some(further) => item = further,
                None => break,
            }
        }
        drop(entered);
    }
}

/// Removes the frame when its function ends, by a panic as well.
struct Entered<'a, L: RawLock, T> {
    frames: &'a Frames<L, T>,
    own: *mut Frame<T>,
}

impl<L: RawLock, T> Drop for Entered<'_, L, T> {
    fn drop(&mut self) {
        self.frames.0.with(|first| first.remove(self.own));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::NoLock;
    use std::cell::RefCell;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::vec::Vec;

    #[test]
    fn a_context_finds_its_frame_until_the_loop_ends() {
        let frames = Frames::<NoLock, Vec<u32>>::new();
        let seen = RefCell::new(Vec::new());
        assert!(frames.with(|_| ()).is_none());
        let work = |item| {
            seen.borrow_mut().push(item);
            if item < 3 {
                let own = frames.with(|value| value.push(item + 1));
                assert!(own.is_some());
            }
        };
        frames.run(1, work, |value, ()| value.pop());
        assert_eq!(*seen.borrow(), [1, 2, 3]);
        assert!(frames.with(|_| ()).is_none());
    }

    #[test]
    fn a_panic_removes_the_frame() {
        let frames = Frames::<NoLock, u32>::new();
        let outer = |()| {
            let panics = || frames.run((), |()| panic!("on purpose"), |_, ()| None);
            assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
            assert!(frames.with(|value| *value += 1).is_some());
        };
        frames.run((), outer, |value, ()| {
            assert_eq!(*value, 1);
            None
        });
        assert!(frames.with(|_| ()).is_none());
    }

    #[cfg(feature = "std")]
    #[test]
    fn each_thread_has_a_frame_of_its_own() {
        use crate::sync::HostLock;
        use std::sync::Barrier;
        use std::thread;

        let frames = Frames::<HostLock, u32>::new();
        let both = Barrier::new(2);
        let count = |number| {
            assert!(frames.with(|_| ()).is_none());
            let work = |()| {
                both.wait();
                frames.with(|value| *value = number).expect("a frame");
                both.wait();
            };
            frames.run((), work, |value, ()| {
                assert_eq!(*value, number);
                None
            });
        };
        thread::scope(|scope| {
            scope.spawn(|| count(1));
            count(2);
        });
    }
}
