//! RoCEv2 in software, at an address of this host.

use backend_roce::{RoceAddress, RoceBackend, RoceOptions};
use dat_core::attributes::IaAddress;

use crate::address::DeviceAddress;
use crate::by_address::{ByAddress, Found};
use crate::error::OpenError;
use crate::options::Options;

/// Form of the device in an address.
const FORM: &str = "`roce://IP` or `roce://INTERFACE`, with \
    `?udp=PORT&keep-alive=SECONDS&mtu=256|512|1024|2048|4096&path=any|local|packets` or a part of it";

/// Parses the name of a device; an empty one stands for all addresses of this host.
fn parse(device: &str) -> Result<RoceAddress, OpenError> {
    if device.is_empty() {
        return Ok(backend_roce::wildcard().into());
    }
    backend_roce::parse_address(device).map_err(|error| OpenError::system(error, FORM))
}

impl ByAddress for RoceBackend {
    const SCHEME: &'static str = "roce";

    fn open(device: &str, options: &Options) -> Result<Self, OpenError> {
        let failed = |error| OpenError::system(error, FORM);
        let address = parse(device)?;
        let mut roce = RoceOptions::random().map_err(failed)?;
        roce.not_ready_retries = options.not_ready_retries();
        roce.keep_alive = options.keep_alive;
        if let Some(start) = options.start_thread {
            roce.start_thread = start;
        }
        address.apply_to(&mut roce);
        Self::open(address.socket, roce).map_err(failed)
    }

    fn addresses(device: &str) -> Result<Vec<IaAddress>, OpenError> {
        Ok(vec![parse(device)?.socket.into()])
    }

    fn devices() -> Result<Vec<Found>, OpenError> {
        let own = backend_roce::addresses().into_iter();
        Ok(vec![Found {
            name: "roce0".into(),
            address: DeviceAddress::new(Self::SCHEME, ""),
            addresses: own
                .map(|ip| IaAddress::from(std::net::SocketAddr::new(ip, 0)))
                .collect(),
            is_active: true,
            description:
                "RDMA over UDP or shared memory between any two processes, without a device; \
                `roce://ADDRESS` selects an address"
                    .into(),
        }])
    }

    fn missing(device: &str) -> Option<String> {
        parse(device).err().map(|why| why.to_string())
    }
}
