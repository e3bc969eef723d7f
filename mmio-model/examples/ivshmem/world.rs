//! The adapter that the machine has, and what it takes part in.

use std::error::Error;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use backend_mmio::DeviceUnit;
use backend_mmio::mailbox::defs;
use backend_mock::{FabricOptions, NodeOptions};
use mmio_model::{MailboxDevice, ModelFabric, driver_address};
use rustix::event::{PollFd, PollFlags, poll};

use crate::peers::{INTERRUPTS, MEMORY, RINGS, VERSION, receive, ring};
use crate::shared;

/// The number of the machine's adapter in the fabric.
const MACHINE: u64 = 2;

/// The fabric, with this process at the one end and the machine at the other.
pub(crate) struct World {
    pub(crate) fabric: ModelFabric,
    server: UnixStream,
    memory: OwnedFd,
    mailbox: &'static [DeviceUnit; defs::UNITS],
    /// Rung by the machine.
    doorbell: OwnedFd,
    /// The machine's, once it is there.
    machine: Option<(i64, Vec<OwnedFd>)>,
    device: Option<MailboxDevice>,
}

impl World {
    /// Takes part, as the first one.
    pub(crate) fn join(socket: &str) -> Result<Self, Box<dyn Error>> {
        let server = UnixStream::connect(socket)?;
        let said = || receive(&server)?.ok_or_else(|| Box::<dyn Error>::from("the server is gone"));
        let (version, number, memory) = (said()?, said()?, said()?);
        let ((VERSION, None), (0, None), (MEMORY, Some(memory))) = (version, number, memory) else {
            return Err("the server says something else, or somebody is there".into());
        };
        let mut own = Vec::new();
        while own.len() < INTERRUPTS {
            match said()? {
                (0, Some(interrupt)) => own.push(interrupt),
                _ => return Err("the server gives no interrupts".into()),
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

    /// Lets everything happen that can; false if there was nothing.
    pub(crate) fn act(&mut self) -> Result<bool, Box<dyn Error>> {
        if self.device.is_none()
            && self.machine.is_some()
            && let Some(at) = driver_address(self.mailbox)
        {
            let (memory, regions) = shared::window(&self.memory, at)?;
            let options = NodeOptions::new("ivshmem", MACHINE);
            let made = self
                .fabric
                .mailbox_device(options, memory, self.mailbox, regions);
            self.device = Some(made);
        }
        let mut any = false;
        if let Some(device) = &mut self.device {
            any |= device.look();
        }
        while self.fabric.step() {
            any = true;
        }
        if let (true, Some((_, interrupts))) = (any, &self.machine) {
            ring(&interrupts[RINGS])?;
        }
        Ok(any)
    }

    /// Waits until the machine rings, comes or goes.
    pub(crate) fn sleep(&mut self) -> Result<(), Box<dyn Error>> {
        let mut watched = [
            PollFd::new(&self.doorbell, PollFlags::IN),
            PollFd::new(&self.server, PollFlags::IN),
        ];
        poll(&mut watched, None)?;
        let [rung, said] = watched.map(|watched| !watched.revents().is_empty());
        if rung {
            rustix::io::read(&self.doorbell, &mut [0; 8])?;
        }
        if said {
            self.listen()?;
        }
        Ok(())
    }

    fn listen(&mut self) -> Result<(), Box<dyn Error>> {
        let said = receive(&self.server)?.ok_or("the server is gone")?;
        match (said, &mut self.machine) {
            ((number, Some(interrupt)), None) => self.machine = Some((number, vec![interrupt])),
            ((number, Some(interrupt)), Some((machine, interrupts))) if number == *machine => {
                interrupts.push(interrupt);
            }
            // Its adapter goes with it.
            ((number, None), Some((machine, _))) if number == *machine => {
                self.machine = None;
                self.device = None;
                println!("the machine is gone");
            }
            _ => return Err("somebody else is there".into()),
        }
        Ok(())
    }
}
