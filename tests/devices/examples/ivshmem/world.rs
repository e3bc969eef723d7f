//! The machine's adapter and the fabric that it is part of.

use std::error::Error;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use backend_mmio::DeviceUnit;
use backend_mmio::defs::mailbox;
use backend_mock::{FabricOptions, NodeOptions};
use mmio_model::{MailboxDevice, ModelFabric, driver_address};
use rustix::event::{PollFd, PollFlags, poll};

use crate::peers::{INTERRUPTS, MEMORY, RINGS, VERSION, receive, ring};
use crate::shared;

/// Number of the machine's adapter in the fabric.
const MACHINE: u64 = 2;

/// Fabric with two adapters: this process and the machine.
pub(crate) struct World {
    pub(crate) fabric: ModelFabric,
    server: UnixStream,
    memory: OwnedFd,
    mailbox: &'static [DeviceUnit; mailbox::UNITS],
    /// Interrupt that the machine rings.
    doorbell: OwnedFd,
    /// Number and interrupts of the machine, once it is connected.
    machine: Option<(i64, Vec<OwnedFd>)>,
    device: Option<MailboxDevice>,
}

impl World {
    /// Joins the shared memory as its first peer.
    pub(crate) fn join(socket: &str) -> Result<Self, Box<dyn Error>> {
        let server = UnixStream::connect(socket)?;
        let next_message = || {
            receive(&server)?
                .ok_or_else(|| Box::<dyn Error>::from("the server closed the connection"))
        };
        let (version, number, memory) = (next_message()?, next_message()?, next_message()?);
        let ((VERSION, None), (0, None), (MEMORY, Some(memory))) = (version, number, memory) else {
            return Err("the server has another version, or a peer is connected already".into());
        };
        let mut own = Vec::new();
        while own.len() < INTERRUPTS {
            match next_message()? {
                (0, Some(interrupt)) => own.push(interrupt),
                _ => return Err("the server sent no interrupts".into()),
            }
        }
        Ok(Self {
            fabric: ModelFabric::new(FabricOptions::default()),
            server,
            mailbox: shared::mailbox(&memory)?,
            memory,
            doorbell: own.swap_remove(RINGS),
            machine: None,
            device: None,
        })
    }

    /// Does all pending work; returns false if there was none.
    pub(crate) fn act(&mut self) -> Result<bool, Box<dyn Error>> {
        if self.device.is_none()
            && self.machine.is_some()
            && let Some(at) = driver_address(self.mailbox)
        {
            let (memory, regions) = shared::window(&self.memory, at)?;
            let options = NodeOptions::new("ivshmem", MACHINE);
            let created = self
                .fabric
                .mailbox_device(options, memory, self.mailbox, regions);
            self.device = Some(created);
        }
        let mut any = false;
        if let Some(device) = &mut self.device {
            any |= device.serve();
        }
        while self.fabric.step() {
            any = true;
        }
        if let (true, Some((_, interrupts))) = (any, &self.machine) {
            ring(&interrupts[RINGS])?;
        }
        Ok(any)
    }

    /// Waits until the machine rings, connects or leaves.
    pub(crate) fn sleep(&mut self) -> Result<(), Box<dyn Error>> {
        let mut watched = [
            PollFd::new(&self.doorbell, PollFlags::IN),
            PollFd::new(&self.server, PollFlags::IN),
        ];
        poll(&mut watched, None)?;
        let [rung, has_message] = watched.map(|watched| !watched.revents().is_empty());
        if rung {
            rustix::io::read(&self.doorbell, &mut [0; 8])?;
        }
        if has_message {
            self.listen()?;
        }
        Ok(())
    }

    fn listen(&mut self) -> Result<(), Box<dyn Error>> {
        let message = receive(&self.server)?.ok_or("the server closed the connection")?;
        match (message, &mut self.machine) {
            ((number, Some(interrupt)), None) => self.machine = Some((number, vec![interrupt])),
            ((number, Some(interrupt)), Some((machine, interrupts))) if number == *machine => {
                interrupts.push(interrupt);
            }
            // The machine's adapter leaves with it.
            ((number, None), Some((machine, _))) if number == *machine => {
                self.machine = None;
                self.device = None;
                println!("the machine is gone");
            }
            _ => return Err("another peer is connected".into()),
        }
        Ok(())
    }
}
