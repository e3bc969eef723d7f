//! Send queues.

use std::sync::Arc;

use dat_core::backend::{
    BindRequest, ExtendedRequest, Rejected, Segment, SendQueue, SendRequest, WorkQueue, WorkSlot,
};

use crate::generational_map::GenerationalMap;
use crate::hal::{NotBound, Region, SendList, SendSlot, WindowType};
use crate::objects::{BoundWindow, KeyedObjects, Objects, next_key};

/// The send queue of a queue pair.
///
/// The doorbell posts all requests that were committed since the last one as one list, by one
/// `ibv_post_send`. Short Sends and Writes carry their data inline, if the device supports it. The
/// processor reads inline data without the device's check of the key, so only the core may post
/// them: it keeps the regions registered meanwhile.
#[derive(Debug)]
pub struct VerbsSendQueue {
    pub(crate) list: SendList,
    /// Number of the queue pair at the device.
    pub(crate) number: u32,
    pub(crate) objects: Arc<Objects>,
}

/// A reserved slot of a send queue.
#[derive(Debug)]
pub struct VerbsSendSlot<'a>(SendSlot<'a>);

impl WorkSlot for VerbsSendSlot<'_> {
    #[inline]
    fn segment(&mut self, segment: Segment) {
        self.0.segment(segment);
    }

    #[inline]
    fn commit(self, length: u32) -> Result<(), Rejected> {
        self.0.commit(length);
        Ok(())
    }
}

impl WorkQueue for VerbsSendQueue {
    type Request = SendRequest;
    type Slot<'a> = VerbsSendSlot<'a>;

    #[inline(always)]
    fn reserve(&mut self, request: &SendRequest, segments: usize) -> Option<VerbsSendSlot<'_>> {
        self.list.begin(request, segments).map(VerbsSendSlot)
    }

    #[inline(always)]
    fn ring(&mut self) -> Result<(), u32> {
        self.list.ring()
    }
}

impl SendQueue for VerbsSendQueue {
    /// Binds a type 1 window by `ibv_bind_mw`, and a type 2 window by requests that close and open
    /// it.
    ///
    /// On devices that have only type 2 a window serves the queue pair that it was bound on. It can
    /// be bound on another one only once that one is gone.
    ///
    /// Spec: RMB-18, RMB-19
    fn bind(&mut self, request: &BindRequest) -> Result<u32, Rejected> {
        let mut tables = self.objects.tables.lock();
        let KeyedObjects { windows, regions } = &mut *tables;
        let window = windows.get_mut(request.window.0).ok_or(Rejected)?;
        if request.length == 0 {
            return unbind(&mut self.list, self.number, window, regions, request);
        }
        if window.is_spent(request.is_only) {
            return Err(Rejected);
        }
        let object = request.region.object;
        let region = regions.get(object).ok_or(Rejected)?;
        if !region.is_in(window.window.domain()) {
            return Err(Rejected);
        }
        let key = match window.window.kind() {
            WindowType::One => self.list.bind_by_call(&window.window, request, region)?,
            WindowType::Two => {
                let key = next_key(window.last_key);
                rebind(
                    &mut self.list,
                    self.number,
                    window,
                    request,
                    Some((region, key)),
                )?;
                key
            }
        };
        window.posted(object, request.address);
        Ok(key)
    }

    fn post_extended(
        &mut self,
        request: &ExtendedRequest,
        segments: &[Segment],
    ) -> Result<(), Rejected> {
        self.list.post_extended(request, segments)
    }
}

/// Unbinds a window; providers want the region that is bound, and an address in it.
fn unbind(
    list: &mut SendList,
    number: u32,
    window: &mut BoundWindow,
    regions: &GenerationalMap<Region>,
    request: &BindRequest,
) -> Result<u32, Rejected> {
    let region = regions
        .get(window.regions[0])
        .filter(|region| region.is_in(window.window.domain()));
    match (window.window.kind(), region) {
        (WindowType::One, Some(region)) => {
            let address = window.address;
            let request = BindRequest {
                address,
                ..*request
            };
            let key = list.bind_by_call(&window.window, &request, region)?;
            window.keys_left = window.keys_left.saturating_sub(1);
            Ok(key)
        }
        (WindowType::One, None) => {
            // Nothing is bound, since its region would be there. The request only keeps its place
            // in the order.
            list.bind_by_request(&mut window.window, None, request, None)
                .map(|()| 0)
                .map_err(|_| Rejected)
        }
        (WindowType::Two, _) => {
            rebind(list, number, window, request, None)?;
            Ok(next_key(window.last_key))
        }
    }
}

/// Closes a type 2 window if it is open, and opens it if there is a region and a new key.
fn rebind(
    list: &mut SendList,
    number: u32,
    window: &mut BoundWindow,
    request: &BindRequest,
    opened: Option<(&Region, u32)>,
) -> Result<(), Rejected> {
    let old = window.open_key(number)?;
    match list.bind_by_request(&mut window.window, old, request, opened) {
        Ok(()) => {
            window.bound_on = opened.map(|(_, key)| {
                window.last_key = key;
                number
            });
            Ok(())
        }
        Err(refused) => {
            if refused == NotBound::Closed {
                window.bound_on = None;
            }
            Err(Rejected)
        }
    }
}

#[cfg(test)]
mod bind_tests;

#[cfg(test)]
mod tests;
