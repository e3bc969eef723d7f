//! Service points of an adapter, and the UDP ports that they claim.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use dat_core::backend::BackendError;

use super::Adapter;
use crate::proto::connection::{ConnectRequest, service_of};
use crate::reserve::Reserve;

/// Service id of a service point, and the address that requests go to.
///
/// An unspecified address stands for its family, and none for all.
pub(super) type Service = (u64, Option<IpAddr>);

/// A service point.
pub(crate) struct Listener {
    pub(crate) token: u64,
    service: Service,
    port: u16,
    /// Connections whose peers have not proven their addresses (ROCE-196).
    pub(super) unproven: usize,
}

/// Names a service point, also after its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServicePoint {
    key: usize,
    pub(super) token: u64,
}

/// Returns the service id of a connection qualifier.
///
/// Between our own ends, qualifiers beyond those of rdma_cm have ids outside of its range.
pub(super) fn service(qualifier: u64) -> u64 {
    u16::try_from(qualifier).map_or(qualifier ^ 1 << 63, service_of)
}

/// Returns the UDP port of a connection qualifier (ROCE-44, ROCE-45).
///
/// Ports that need a privilege, and qualifiers that are no ports, have one below the range in which
/// systems choose ports for clients.
pub(crate) fn port_of(qualifier: u64) -> u16 {
    const FIRST: u64 = 10_000;
    const COUNT: u64 = 20_000;
    match u16::try_from(qualifier) {
        Ok(port) if port >= 1024 => port,
        _ => {
            let mixed = qualifier.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
            // Below 30,000.
            (FIRST + mixed % COUNT) as u16
        }
    }
}

impl Adapter {
    /// Returns the service point of an address: the one of this address alone comes first.
    fn service_of(&self, service: u64, address: IpAddr) -> Option<usize> {
        let family = match address {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let mut addresses = [Some(address), Some(family), None].into_iter();
        addresses.find_map(|at| self.services.get(&(service, at)).copied())
    }

    /// Returns the service point that a request which came to an address is for.
    ///
    /// A translator may publish a port under another number, which the active side has dialled and
    /// takes for the qualifier (ROCE-187).
    pub(super) fn service_at(
        &self,
        local: SocketAddr,
        request: &ConnectRequest,
    ) -> Option<ServicePoint> {
        let dialled = request.mark.map(|mark| service_of(mark.dialled));
        let published = (dialled == Some(request.service))
            .then(|| self.service_of(service_of(local.port()), local.ip()))
            .flatten();
        let named = || self.service_of(request.service, local.ip());
        let key = published.or_else(named)?;
        let token = self.listeners.get(key)?.token;
        Some(ServicePoint { key, token })
    }

    /// Returns a service point, unless it has ended.
    pub(super) fn service_point(&mut self, point: ServicePoint) -> Option<&mut Listener> {
        let listener = self.listeners.get_mut(point.key);
        listener.filter(|listener| listener.token == point.token)
    }

    /// Adds a service point whose port is claimed.
    ///
    /// # Errors
    /// - `QualifierInUse`: this adapter has one with the qualifier and the address.
    /// - `Resources`: there is no memory for it.
    pub(crate) fn listen(
        &mut self,
        token: u64,
        qualifier: u64,
        address: Option<IpAddr>,
    ) -> Result<usize, BackendError> {
        let service = (service(qualifier), address);
        if self.services.contains_key(&service) {
            return Err(BackendError::QualifierInUse);
        }
        let port = port_of(qualifier);
        // A port moves from one table to the other.
        let ports = self.ports.len() + self.unused_ports.len() + 1;
        let has_room = self.listeners.has_room()
            && self.services.try_reserve(1).is_ok()
            && self.ports.try_reserve(1).is_ok()
            && self.unused_ports.has_room_for(ports);
        if !has_room {
            return Err(BackendError::Resources);
        }
        let key = self.listeners.insert(Listener {
            token,
            service,
            port,
            unproven: 0,
        });
        self.services.insert(service, key);
        *self.ports.entry(port).or_default() += 1;
        self.unused_ports.retain(|unused| *unused != port);
        Ok(key)
    }

    /// Returns true if there is a service point with a qualifier, at the same address.
    pub(crate) fn listens(&self, qualifier: u64, address: Option<IpAddr>) -> bool {
        self.services.contains_key(&(service(qualifier), address))
    }

    /// Returns true if a port is claimed already.
    pub(crate) fn has_port(&self, port: u16) -> bool {
        port == self.address.port() || self.ports.contains_key(&port)
    }

    pub(crate) fn stop_listening(&mut self, key: usize) {
        if let Some(listener) = self.listeners.remove(key) {
            self.services.remove(&listener.service);
            self.leave_port(listener.port);
            self.forget_parked(listener.token);
        }
    }

    pub(super) fn leave_port(&mut self, port: u16) {
        if let Some(users) = self.ports.get_mut(&port) {
            *users -= 1;
            if *users == 0 {
                self.ports.remove(&port);
                if port != self.address.port() {
                    self.unused_ports.push(port);
                    self.has_chores = true;
                }
            }
        }
    }

    /// Gives all claimed ports back.
    pub(crate) fn leave_ports(&mut self) {
        let own = self.address.port();
        let ports = self.ports.drain().map(|(port, _)| port);
        self.unused_ports.extend(ports.filter(|port| *port != own));
        self.has_chores = true;
    }
}
