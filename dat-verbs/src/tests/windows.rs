//! Memory windows of type 2, and keys that requests invalidate.

use core::ptr::null_mut;

use nix::errno::Errno;

use super::posts::Bed;
use crate::boundary::layout::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND, IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_ZERO_BASED,
    IBV_DEVICE_MEM_WINDOW_TYPE_2B, IBV_MW_TYPE_1, IBV_MW_TYPE_2, IBV_QPT_UD, IBV_SEND_SIGNALED,
    IBV_WC_BIND_MW, IBV_WC_LOCAL_INV, IBV_WC_MW_BIND_ERR, IBV_WC_RECV, IBV_WC_SEND, IBV_WC_SUCCESS,
    IBV_WC_WITH_INV, IBV_WC_WR_FLUSH_ERR, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV, IBV_WR_RDMA_WRITE,
    IBV_WR_SEND_WITH_INV, ibv_device_attr, ibv_mw_bind, ibv_mw_bind_info, ibv_qp_init_attr,
    ibv_send_wr, ibv_sge, ibv_wc,
};
use crate::boundary::{Address, Handle, Out, immediate_of, zeroed};
use crate::memory::{MemoryRegion, ibv_dereg_mr, ibv_reg_mr};
use crate::query::ibv_query_device;
use crate::transfer::{
    Window, alloc_mw, bind_mw, dealloc_mw, ibv_create_qp, ibv_destroy_qp, post_send,
};

/// A window of type 2, and a region that it may be bound to.
struct Opening {
    bed: Bed,
    memory: Box<[u8; 64]>,
    region: Handle<MemoryRegion>,
    window: Handle<Window>,
}

fn window(bed: &Bed, kind: u32) -> Handle<Window> {
    Handle::at(alloc_mw(bed.domain.pointer(), kind))
}

fn region(bed: &Bed, memory: &[u8], access: u32) -> Handle<MemoryRegion> {
    let start = Address(memory.as_ptr().cast_mut().cast());
    ibv_reg_mr(bed.domain, start, memory.len(), access.cast_signed())
}

/// Returns the same key with another lowest byte, as `ibv_inc_rkey` does.
const fn next(key: u32) -> u32 {
    key & !0xFF | (key + 1) & 0xFF
}

impl Opening {
    fn new() -> Self {
        let bed = Bed::new();
        let memory = Box::new([0; 64]);
        let region = region(&bed, &*memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
        let window = window(&bed, IBV_MW_TYPE_2);
        assert!(!region.is_null() && !window.is_null());
        Self {
            bed,
            memory,
            region,
            window,
        }
    }

    /// Returns the first key of the window.
    fn key(&self) -> u32 {
        self.window.read().expect("a window").rkey
    }

    fn info(&self) -> ibv_mw_bind_info {
        ibv_mw_bind_info {
            mr: self.region.pointer(),
            addr: self.memory.as_ptr().addr() as u64 + 8,
            length: 16,
            mw_access_flags: IBV_ACCESS_REMOTE_WRITE,
        }
    }

    /// Returns a request of one of the operations here with a key.
    fn request(&self, opcode: u32, key: u32) -> ibv_send_wr {
        let mut request: ibv_send_wr = zeroed();
        (request.opcode, request.send_flags) = (opcode, IBV_SEND_SIGNALED);
        request.__bindgen_anon_1.invalidate_rkey = key;
        if opcode == IBV_WR_BIND_MW {
            request.__bindgen_anon_2.bind_mw.mw = self.window.pointer();
            request.__bindgen_anon_2.bind_mw.rkey = key;
            request.__bindgen_anon_2.bind_mw.bind_info = self.info();
        }
        request.wr.rdma.remote_addr = self.info().addr;
        request.wr.rdma.rkey = key;
        request
    }

    /// Posts a request, and returns its completion.
    fn complete(&self, opcode: u32, key: u32) -> ibv_wc {
        assert_eq!(self.bed.send(self.request(opcode, key)).0, 0);
        self.bed.complete()
    }

    /// Writes 8 bytes by a key; returns the status.
    fn write(&self, key: u32) -> u32 {
        let mut segment = ibv_sge {
            addr: self.memory.as_ptr().addr() as u64 + 32,
            length: 8,
            lkey: self.region.read().expect("a region").lkey,
        };
        let mut request = self.request(IBV_WR_RDMA_WRITE, key);
        (request.sg_list, request.num_sge) = (&raw mut segment, 1);
        assert_eq!(self.bed.send(request).0, 0);
        self.bed.complete().status
    }

    fn close(self) {
        assert_eq!(dealloc_mw(self.window.pointer()), 0);
        assert_eq!(ibv_dereg_mr(self.region), 0);
        self.bed.close();
    }
}

fn told(wc: &ibv_wc) -> (u32, u32) {
    (wc.status, wc.opcode)
}

/// Spec: ROCE-276, ROCE-277
#[test]
fn a_window_is_bound_and_its_key_is_invalidated() {
    let opening = Opening::new();
    let keys = [0, 1, 2].map(|times| (0..times).fold(opening.key(), |key, _| next(key)));
    assert_ne!(keys[0], 0);
    let is_bound = || ibv_dereg_mr(opening.region) == libc::EBUSY;
    let bound = opening.complete(IBV_WR_BIND_MW, keys[1]);
    assert_eq!(told(&bound), (IBV_WC_SUCCESS, IBV_WC_BIND_MW));
    assert!(is_bound());
    assert_eq!(opening.write(keys[1]), IBV_WC_SUCCESS);
    let ended = opening.complete(IBV_WR_LOCAL_INV, keys[1]);
    assert_eq!(told(&ended), (IBV_WC_SUCCESS, IBV_WC_LOCAL_INV));
    let bound = opening.complete(IBV_WR_BIND_MW, keys[2]);
    assert_eq!(told(&bound), (IBV_WC_SUCCESS, IBV_WC_BIND_MW));
    assert_eq!(opening.bed.receive(5), 0);
    let request = opening.request(IBV_WR_SEND_WITH_INV, keys[2]);
    assert_eq!(opening.bed.send(request).0, 0);
    let mut done = [(); 2].map(|()| opening.bed.complete());
    done.sort_by_key(|wc| wc.opcode);
    assert_eq!(told(&done[0]), (IBV_WC_SUCCESS, IBV_WC_SEND));
    assert_eq!(told(&done[1]), (IBV_WC_SUCCESS, IBV_WC_RECV));
    assert_eq!((done[1].wr_id, done[1].wc_flags), (5, IBV_WC_WITH_INV));
    // The key stands in the place of immediate data.
    assert_eq!(immediate_of(&done[1]), keys[2]);
    // Its peer is the queue pair itself, whose requests fail with it.
    assert_eq!(opening.write(keys[2]), IBV_WC_WR_FLUSH_ERR);
    opening.close();
}

/// Spec: ROCE-275, ROCE-276
#[test]
fn addresses_of_a_window_begin_at_zero_if_the_program_asks() {
    let opening = Opening::new();
    let mut request = opening.request(IBV_WR_BIND_MW, opening.key());
    request.__bindgen_anon_2.bind_mw.bind_info.mw_access_flags =
        IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED;
    assert_eq!(opening.bed.send(request).0, 0);
    assert_eq!(
        told(&opening.bed.complete()),
        (IBV_WC_SUCCESS, IBV_WC_BIND_MW)
    );
    let mut segment = ibv_sge {
        addr: opening.memory.as_ptr().addr() as u64,
        length: 8,
        lkey: opening.region.read().expect("a region").lkey,
    };
    // The last eight bytes, and one byte too many.
    for (address, expected) in [(8, IBV_WC_SUCCESS), (9, IBV_WC_WR_FLUSH_ERR)] {
        let mut request = opening.request(IBV_WR_RDMA_WRITE, opening.key());
        request.wr.rdma.remote_addr = address;
        (request.sg_list, request.num_sge) = (&raw mut segment, 1);
        assert_eq!(opening.bed.send(request).0, 0);
        assert_eq!(opening.bed.complete().status, expected, "{address}");
    }
    opening.close();
}

/// Spec: ROCE-277
#[test]
fn an_invalidation_of_another_key_fails() {
    for opcode in [IBV_WR_LOCAL_INV, IBV_WR_SEND_WITH_INV] {
        let opening = Opening::new();
        opening.complete(IBV_WR_BIND_MW, opening.key());
        assert_eq!(opening.bed.receive(5), 0);
        let wrong = next(opening.key());
        assert_eq!(opening.bed.send(opening.request(opcode, wrong)).0, 0);
        let mut done = [(); 2].map(|()| opening.bed.complete());
        done.sort_by_key(|wc| wc.wr_id);
        let expected = match opcode {
            IBV_WR_LOCAL_INV => IBV_WC_MW_BIND_ERR,
            // Its peer, which refuses it, is the queue pair itself.
            _ => IBV_WC_WR_FLUSH_ERR,
        };
        assert_eq!(done[0].status, expected);
        assert_eq!(done[1].status, IBV_WC_WR_FLUSH_ERR);
        assert_eq!(ibv_dereg_mr(opening.region), libc::EBUSY, "it is bound");
        opening.close();
    }
}

/// Spec: ROCE-276
#[test]
fn a_bind_that_is_wrong_is_refused() {
    let opening = Opening::new();
    let (bed, key) = (&opening.bed, opening.key());
    assert!(window(bed, 3).is_null());
    assert_eq!(Errno::last(), Errno::EINVAL);
    let of_type_1 = window(bed, IBV_MW_TYPE_1);
    let ended = window(bed, IBV_MW_TYPE_2);
    assert_eq!(dealloc_mw(ended.pointer()), 0);
    let bytes = [0; 64];
    let closed = region(bed, &bytes, IBV_ACCESS_LOCAL_WRITE);
    for case in 0..8 {
        let mut request = opening.request(IBV_WR_BIND_MW, key);
        let mut info = opening.info();
        let mut window = opening.window;
        let mut new_key = key;
        match case {
            0 => window = of_type_1,
            1 => window = ended,
            2 => window = Handle::NULL,
            3 => new_key ^= 0x100,
            4 => info.length = 0,
            5 => info.mr = closed.pointer(),
            6 => info.mr = null_mut(),
            _ => info.mw_access_flags = 1 << 19,
        }
        request.__bindgen_anon_2.bind_mw.mw = window.pointer();
        request.__bindgen_anon_2.bind_mw.rkey = new_key;
        request.__bindgen_anon_2.bind_mw.bind_info = info;
        assert_eq!(bed.send(request), (libc::EINVAL, true), "case {case}");
    }
    // A window of type 2 is not bound by the call for type 1.
    let mut call: ibv_mw_bind = zeroed();
    call.bind_info = opening.info();
    let bind = |window: Handle<Window>, call: &mut ibv_mw_bind| {
        bind_mw(bed.pair.pointer(), window.pointer(), &raw mut *call)
    };
    assert_eq!(bind(opening.window, &mut call), libc::EINVAL);
    assert_eq!(bind(of_type_1, &mut call), 0);
    assert_eq!(bed.poll().map_or(0, |wc| wc.status), IBV_WC_SUCCESS);
    // Datagrams have no windows.
    let mut wanted: ibv_qp_init_attr = zeroed();
    let queue = bed.pair.read().expect("a pair").qp_base.send_cq;
    (wanted.send_cq, wanted.recv_cq) = (queue, queue);
    (wanted.qp_type, wanted.cap.max_send_wr) = (IBV_QPT_UD, 1);
    let datagrams = ibv_create_qp(bed.domain, Out::at(&raw mut wanted));
    let mut request = opening.request(IBV_WR_BIND_MW, key);
    let mut bad = null_mut();
    let posted = post_send(datagrams.pointer(), &raw mut request, &raw mut bad);
    assert_eq!(posted, libc::EINVAL);
    assert_eq!(ibv_destroy_qp(datagrams), 0);
    assert_eq!(dealloc_mw(of_type_1.pointer()), 0);
    assert_eq!(ibv_dereg_mr(closed), 0);
    opening.close();
}

#[test]
fn the_device_tells_of_windows_of_type_2() {
    let bed = Bed::new();
    let mut attributes: ibv_device_attr = zeroed();
    assert_eq!(
        ibv_query_device(bed.context.0, Out::at(&raw mut attributes)),
        0
    );
    assert_ne!(
        attributes.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B,
        0
    );
    bed.close();
}
