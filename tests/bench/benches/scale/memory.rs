//! Bytes of objects in the core, without the queues of the backend.

use backend_mock::{MockReceiveQueue, MockSendQueue};
use dat_core::endpoint::EndpointSlot;
use dat_core::memory::LmrSlot;
use dat_core::sync::HostLock;
use dat_core::{FreeLink, RecordSlot};

use crate::world::{RECEIVES, REQUESTS};

type Endpoint = EndpointSlot<MockSendQueue, MockReceiveQueue, HostLock>;

/// Returns a line for each kind of object: `memory`, its bytes, its name and what it consists of.
pub(crate) fn lines() -> [String; 2] {
    let (endpoint, region) = (size_of::<Endpoint>(), size_of::<LmrSlot>());
    let queues = size_of::<MockSendQueue>() + size_of::<MockReceiveQueue>();
    let link = size_of::<FreeLink>();
    let count = (REQUESTS + RECEIVES) as usize;
    let records = count * size_of::<RecordSlot>();
    [
        format!(
            "memory {} idle endpoint: slot {endpoint} without the mock's queues {queues}, link {link}, {count} records {records}",
            endpoint - queues + link + records
        ),
        format!(
            "memory {} region: slot {region}, link {link}",
            region + link
        ),
    ]
}
