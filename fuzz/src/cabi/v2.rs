//! Calls of DAT 2.0 through our `libdat2` and provider, as a linked program makes them.

use std::mem::size_of;
use std::sync::Once;

use dat_ffi::redirection;
use dat_ffi::v2::types::*;

use super::source::{Argument, LISTED, Source, Words, of_bytes, words};
use super::{CallList, Dat};

/// Those operations of `DAT_IB_OP` that have arguments.
const FETCH_AND_ADD: u64 = 0;
const COMPARE_AND_SWAP: u64 = 1;
const WRITE_IMMEDIATE: u64 = 2;

/// The words of the longest call, and some more.
const WORDS: usize = 14;

/// The arguments of a call in registers and on the stack.
///
/// Each takes a word, except for structures of two words.
#[derive(Default)]
struct Arguments {
    words: [u64; WORDS],
    count: usize,
}

impl Arguments {
    fn of(words: &[u64]) -> Self {
        let mut arguments = Self::default();
        words.iter().for_each(|word| arguments.push(*word));
        arguments
    }

    fn push<T>(&mut self, value: T) {
        let size = size_of::<T>();
        assert!(matches!(size, 4 | 8 | 16), "an argument of C");
        let target = self.words[self.count..].as_mut_ptr();
        // SAFETY: the array has room for two words after every argument of the longest call.
        unsafe {
            assert!(self.count + 2 <= WORDS);
            target.cast::<T>().write_unaligned(value);
        }
        self.count += size.div_ceil(8);
    }

    /// Calls a function of the library.
    fn call(&self, function: *const ()) -> u32 {
        type W = u64;
        type Function = extern "C" fn(W, W, W, W, W, W, W, W, W, W, W, W, W, W) -> u32;
        // SAFETY: on the library's processors, an argument's place does not depend on the number of
        // arguments after it, and a structure of two words has the place of two words.
        let function: Function = unsafe { std::mem::transmute(function) };
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = self.words;
        function(a, b, c, d, e, f, g, h, i, j, k, l, m, n)
    }
}

/// Exports the functions that providers look up in a registry.
macro_rules! registry {
    ($($name:ident)*) => {$(
        /// Calls the library's function.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(first: u64, second: u64) -> u32 {
            Arguments::of(&[first, second]).call(redirection::$name as *const ())
        }
    )*};
}

registry! { dat_registry_add_provider dat_registry_remove_provider dats_get_ia_handle }

words! { ShortTriplet: 2; EpAttributes: 7; Event: 2; }

impl Argument for List<ShortTriplet> {
    fn make(source: &mut Source<'_>, _name: &str) -> Self {
        of_bytes(source.filled(LISTED, 8, 6))
    }
}

/// The first word of `DAT_EP_PARAM`'s five handles, and the count of numbers after them.
const PARAM_HANDLES: usize = 7;
const PARAM_NUMBERS: usize = 7;

/// A `DAT_EP_PARAM` to read, with handles.
struct Parameters(#[expect(dead_code, reason = "a word that goes to C")] usize);

impl Argument for Parameters {
    fn make(source: &mut Source<'_>, _name: &str) -> Self {
        let block = source.block(size_of::<EpParam>(), 8);
        if !block.is_null() {
            for at in 0..5 + PARAM_NUMBERS {
                let word = match at {
                    0..5 => source.handle() as u64,
                    _ => source.number(),
                };
                // SAFETY: inside the structure.
                unsafe { block.cast::<u64>().add(PARAM_HANDLES + at).write(word) };
            }
        }
        Self(block as usize)
    }
}

/// A pointer to a handle.
struct Reused(#[expect(dead_code, reason = "a word that goes to C")] usize);

impl Argument for Reused {
    fn make(source: &mut Source<'_>, name: &str) -> Self {
        let pointer: Out<CHandle> = Argument::make(source, name);
        let pointer: usize = of_bytes(pointer);
        let handle = source.handle();
        if pointer != 0 {
            // SAFETY: it points to memory for a handle.
            unsafe { (pointer as *mut usize).write(handle) };
        }
        Self(pointer)
    }
}

/// An extended operation and its arguments, all in memory as those after the sixth are.
#[repr(C)]
struct Operation {
    number: u64,
    arguments: usize,
}

/// The words of the operation with the most arguments, and some unused ones.
const VARIABLE: usize = 8;

impl Argument for Operation {
    fn make(source: &mut Source<'_>, _name: &str) -> Self {
        let number = source.number() & u64::from(u32::MAX);
        let list: List<ShortTriplet> = Argument::make(source, "segments");
        let remote: In<ShortTriplet> = Argument::make(source, "remote");
        let (list, remote) = (of_bytes(list), of_bytes(remote));
        let [a, b, cookie, flags] = [(); 4].map(|()| source.number());
        let words: &[u64] = match number {
            FETCH_AND_ADD => &[a, list, cookie, remote, flags],
            COMPARE_AND_SWAP => &[a, b, list, cookie, remote, flags],
            WRITE_IMMEDIATE => &[a, list, cookie, remote, b, flags],
            _ => &[a, b, cookie, flags],
        };
        let stack = source.required(size_of::<[u64; VARIABLE]>());
        let reader = source.required(24);
        // SAFETY: the blocks have these sizes.
        unsafe {
            let mut pointer = stack.cast::<u64>();
            for word in words {
                pointer.write(*word);
                pointer = pointer.add(1);
            }
            reader.cast::<[u32; 2]>().write([48, 176]);
            reader.cast::<*mut u8>().add(1).write(stack);
        }
        Self {
            number,
            arguments: reader as usize,
        }
    }
}

macro_rules! table {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        /// The calls by name.
        const TABLE: &CallList<u32> = &[
            $((stringify!($name), |source| {
                let mut arguments = Arguments::default();
                $(arguments.push(<$type as Argument>::make(source, stringify!($argument)));)*
                arguments.call(redirection::$name as *const ())
            }),)*
        ];
    };
}

table! {
    dat_ia_openv(name: Text, async_evd_min_qlen: i32, async_evd: Reused, ia: Out<CHandle>, major: u32, minor: u32, is_thread_safe: u32);
    dat_ia_close(ia: CHandle, flags: u32);
    dats_get_ia_handle(ia: CHandle, own: Out<CHandle>);
    dat_strerror(value: u32, major: Out<StaticText>, minor: Out<StaticText>);
    dat_registry_list_providers(most: i32, count: Out<i32>, places: List<Out<ProviderInfo>>);
    dat_registry_add_provider(provider: Nothing, info: In<ProviderInfo>);
    dat_registry_remove_provider(provider: Nothing, info: In<ProviderInfo>);
    dat_extension_op(handle: CHandle, operation: Operation);
    dat_ia_query(ia: CHandle, async_evd: Out<CHandle>, ia_mask: u64, attributes: Out<IaAttributes>, provider_mask: u64, provider: Out<ProviderAttributes>);
    dat_set_consumer_context(handle: CHandle, context: u64);
    dat_get_consumer_context(handle: CHandle, context: Out<u64>);
    dat_get_handle_type(handle: CHandle, kind: Out<u32>);
    dat_cno_create(ia: CHandle, agent: Agent, cno: Out<CHandle>);
    dat_cno_modify_agent(cno: CHandle, agent: Agent);
    dat_cno_query(cno: CHandle, mask: u32, param: Out<CnoParam>);
    dat_cno_free(cno: CHandle);
    dat_cno_wait(cno: CHandle, timeout: u32, evd: Out<CHandle>);
    dat_cr_query(cr: CHandle, mask: u32, param: Out<CrParam>);
    dat_cr_accept(cr: CHandle, ep: CHandle, size: i32, data: List<u8>);
    dat_cr_reject(cr: CHandle, size: i32, data: List<u8>);
    dat_cr_handoff(cr: CHandle, qualifier: u64);
    dat_evd_create(ia: CHandle, length: i32, cno: CHandle, flags: u32, evd: Out<CHandle>);
    dat_evd_query(evd: CHandle, mask: u32, param: Out<EvdParam>);
    dat_evd_modify_cno(evd: CHandle, cno: CHandle);
    dat_evd_enable(evd: CHandle);
    dat_evd_disable(evd: CHandle);
    dat_evd_wait(evd: CHandle, timeout: u32, threshold: i32, event: Out<Event>, more: Out<i32>);
    dat_evd_resize(evd: CHandle, length: i32);
    dat_evd_post_se(evd: CHandle, event: In<Event>);
    dat_evd_dequeue(evd: CHandle, event: Out<Event>);
    dat_evd_free(evd: CHandle);
    dat_ep_create(ia: CHandle, pz: CHandle, receives: CHandle, requests: CHandle, connections: CHandle, attributes: In<EpAttributes>, ep: Out<CHandle>);
    dat_ep_query(ep: CHandle, mask: u64, param: Out<EpParam>);
    dat_ep_modify(ep: CHandle, mask: u64, param: Parameters);
    dat_ep_connect(ep: CHandle, address: Address, qualifier: u64, time: u32, size: i32, data: List<u8>, quality: u32, flags: u32);
    dat_ep_dup_connect(ep: CHandle, other: CHandle, time: u32, size: i32, data: List<u8>, quality: u32);
    dat_ep_disconnect(ep: CHandle, flags: u32);
    dat_ep_post_send(ep: CHandle, number: i32, segments: List<ShortTriplet>, cookie: u64, flags: u32);
    dat_ep_post_recv(ep: CHandle, number: i32, segments: List<ShortTriplet>, cookie: u64, flags: u32);
    dat_ep_post_rdma_read(ep: CHandle, number: i32, segments: List<ShortTriplet>, cookie: u64, remote: In<ShortTriplet>, flags: u32);
    dat_ep_post_rdma_write(ep: CHandle, number: i32, segments: List<ShortTriplet>, cookie: u64, remote: In<ShortTriplet>, flags: u32);
    dat_ep_get_status(ep: CHandle, state: Out<u32>, receives: Out<u32>, requests: Out<u32>);
    dat_ep_free(ep: CHandle);
    dat_lmr_create(ia: CHandle, memory_type: u32, description: RegionDescription, length: u64, pz: CHandle, privileges: u32, address_type: u32, lmr: Out<CHandle>, lmr_context: Out<u32>, rmr_context: Out<u32>, registered_size: Out<u64>, registered_address: Out<u64>);
    dat_lmr_query(lmr: CHandle, mask: u32, param: Out<LmrParam>);
    dat_lmr_free(lmr: CHandle);
    dat_rmr_create(pz: CHandle, rmr: Out<CHandle>);
    dat_rmr_query(rmr: CHandle, mask: u32, param: Out<RmrParam>);
    dat_rmr_bind(rmr: CHandle, lmr: CHandle, segment: In<ShortTriplet>, privileges: u32, kind: u32, ep: CHandle, cookie: u64, flags: u32, context: Out<u32>);
    dat_rmr_free(rmr: CHandle);
    dat_psp_create(ia: CHandle, qualifier: u64, evd: CHandle, flags: u32, psp: Out<CHandle>);
    dat_psp_query(psp: CHandle, mask: u32, param: Out<PspParam>);
    dat_psp_free(psp: CHandle);
    dat_rsp_create(ia: CHandle, qualifier: u64, ep: CHandle, evd: CHandle, rsp: Out<CHandle>);
    dat_rsp_query(rsp: CHandle, mask: u32, param: Out<RspParam>);
    dat_rsp_free(rsp: CHandle);
    dat_pz_create(ia: CHandle, pz: Out<CHandle>);
    dat_pz_query(pz: CHandle, mask: u32, param: Out<PzParam>);
    dat_pz_free(pz: CHandle);
    dat_psp_create_any(ia: CHandle, qualifier: Out<u64>, evd: CHandle, flags: u32, psp: Out<CHandle>);
    dat_ep_reset(ep: CHandle);
    dat_evd_set_unwaitable(evd: CHandle);
    dat_evd_clear_unwaitable(evd: CHandle);
    dat_lmr_sync_rdma_read(ia: CHandle, segments: List<ShortTriplet>, count: u64);
    dat_lmr_sync_rdma_write(ia: CHandle, segments: List<ShortTriplet>, count: u64);
    dat_ep_create_with_srq(ia: CHandle, pz: CHandle, receives: CHandle, requests: CHandle, connections: CHandle, srq: CHandle, attributes: In<EpAttributes>, ep: Out<CHandle>);
    dat_ep_recv_query(ep: CHandle, buffers: Out<i32>, span: Out<i32>);
    dat_ep_set_watermark(ep: CHandle, soft: i32, hard: i32);
    dat_srq_create(ia: CHandle, pz: CHandle, attributes: In<SrqAttributes>, srq: Out<CHandle>);
    dat_srq_free(srq: CHandle);
    dat_srq_post_recv(srq: CHandle, number: i32, segments: List<ShortTriplet>, cookie: u64);
    dat_srq_query(srq: CHandle, mask: u32, param: Out<SrqParam>);
    dat_srq_resize(srq: CHandle, length: i32);
    dat_srq_set_lw(srq: CHandle, low_watermark: i32);
}

/// A null pointer: C promises a valid provider table, so no other value is made.
struct Nothing(#[expect(dead_code, reason = "a word that goes to C")] usize);

impl Argument for Nothing {
    fn make(_source: &mut Source<'_>, _name: &str) -> Self {
        Self(0)
    }
}

/// Returns the names of the calls, in the order of their numbers in inputs.
#[must_use]
pub fn names() -> Vec<&'static str> {
    TABLE.iter().map(|(name, _)| *name).collect()
}

/// Adds our provider to the registry, once.
fn enter() {
    static ENTERED: Once = Once::new();
    ENTERED.call_once(|| {
        // `DAT_PROVIDER_INFO`: a name of 256 bytes, the version, and thread safety.
        let mut info = [0_u32; 67];
        for (word, bytes) in info.iter_mut().zip(b"mock0\0\0\0".as_chunks().0) {
            *word = u32::from_ne_bytes(*bytes);
        }
        [info[64], info[65], info[66]] = [2, 0, 1];
        assert_eq!(size_of_val(&info), size_of::<ProviderInfo>());
        dat_ffi::v2::register(
            of_bytes(info.as_ptr()),
            of_bytes(c"mock 1 extended".as_ptr()),
        );
    });
}

fn open() -> [usize; 2] {
    let (mut evd, mut ia) = (0_usize, 0_usize);
    let (evd_place, ia_place) = ((&raw mut evd) as u64, (&raw mut ia) as u64);
    let name = c"mock0".as_ptr() as u64;
    let arguments = Arguments::of(&[name, 8, evd_place, ia_place, 2, 0, 1]);
    let code = arguments.call(redirection::dat_ia_openv as *const ());
    assert_eq!(code, 0, "an adapter");
    [ia, evd]
}

/// Runs an input: the number of each call, and the source of its arguments.
///
/// # Panics
/// A promise is broken.
pub fn run(input: &[u8]) {
    enter();
    let library = Dat {
        table: TABLE,
        open,
        strerror: |code, [major, minor]| {
            let arguments = Arguments::of(&[code.into(), major as u64, minor as u64]);
            arguments.call(redirection::dat_strerror as *const ())
        },
        close: |ia| Arguments::of(&[ia as u64, 0]).call(redirection::dat_ia_close as *const ()),
        handle_type: |handle, kind| {
            let arguments = Arguments::of(&[handle as u64, kind as u64]);
            arguments.call(redirection::dat_get_handle_type as *const ())
        },
    };
    library.run(input);
}
