//! What the devices of an emulation drop, as the kernel counts it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::netlink::{Netlink, NetlinkError};

/// Packets that devices dropped, and what they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// By the hold device: TAP, veth, sch_fq.
    pub hold: u64,
    /// By the splitter.
    pub splitter: u64,
    /// By the emulated interface and its root qdisc since it is emulated: other traffic's too.
    pub interface: u64,
    /// Packets that wait in the hold device's qdisc.
    pub waiting: u64,
}

/// The devices of one interface, read again and again.
pub(crate) struct Ledger {
    /// A socket to their namespace.
    netlink: Netlink,
    hold: u32,
    splitter: u32,
    interface: u32,
    /// What the interface had dropped before.
    before: u64,
    last: Losses,
}

/// Those of all interfaces.
#[derive(Default)]
pub(crate) struct Ledgers {
    open: Vec<Ledger>,
    /// What the devices of interfaces that have gone had dropped.
    closed: Losses,
}

/// For whoever tells them.
pub(crate) type SharedLedgers = Arc<Mutex<Ledgers>>;

/// The ledgers, even if a thread has panicked over them: they are figures.
pub(crate) fn lock(ledgers: &SharedLedgers) -> MutexGuard<'_, Ledgers> {
    ledgers.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::ops::AddAssign for Losses {
    fn add_assign(&mut self, more: Self) {
        self.hold += more.hold;
        self.splitter += more.splitter;
        self.interface += more.interface;
        self.waiting += more.waiting;
    }
}

impl Ledgers {
    /// Reads one with the others from now on.
    pub(crate) fn open(&mut self, ledger: Ledger) {
        self.open.push(ledger);
    }

    /// Closes that of an interface whose devices have gone, with its socket; its figures stay in the sum.
    pub(crate) fn close(&mut self, interface: u32) -> Result<(), NetlinkError> {
        let of_it = |ledger: &Ledger| ledger.interface == interface;
        while let Some(place) = self.open.iter().position(of_it) {
            let last = self.open.swap_remove(place).read()?;
            self.closed += Losses {
                hold: last.hold + last.waiting,
                waiting: 0,
                ..last
            };
        }
        Ok(())
    }

    /// The sum over all interfaces.
    pub(crate) fn total(&mut self) -> Result<Losses, NetlinkError> {
        let mut sum = self.closed;
        for ledger in &mut self.open {
            sum += ledger.read()?;
        }
        Ok(sum)
    }
}

impl Ledger {
    /// From now on, of the devices with these indices in the namespace of `netlink`.
    pub(crate) fn begin(
        mut netlink: Netlink,
        hold: u32,
        splitter: u32,
        interface: u32,
    ) -> Result<Self, NetlinkError> {
        Ok(Self {
            before: dropped(&mut netlink, interface)?,
            netlink,
            hold,
            splitter,
            interface,
            last: Losses::default(),
        })
    }

    /// What they have dropped; once they are gone the last known figures, and what waited is lost by the hold device.
    fn read(&mut self) -> Result<Losses, NetlinkError> {
        match self.look() {
            Ok(losses) => self.last = losses,
            Err(error) if error.is(libc::ENODEV) => self.last.hold += std::mem::take(&mut self.last.waiting),
            Err(error) => return Err(error),
        }
        Ok(self.last)
    }

    fn look(&mut self) -> Result<Losses, NetlinkError> {
        let netlink = &mut self.netlink;
        let qdisc = netlink.root_qdisc(self.hold)?;
        // Drops behind a veth count at both ends: at the near one here.
        Ok(Losses {
            hold: netlink.drops(self.hold)?.transmit + u64::from(qdisc.drops),
            splitter: netlink.drops(self.splitter)?.transmit
                + u64::from(netlink.root_qdisc(self.splitter)?.drops),
            interface: dropped(netlink, self.interface)?.saturating_sub(self.before),
            waiting: qdisc.backlog.into(),
        })
    }
}

/// What an interface and its root qdisc have dropped.
fn dropped(netlink: &mut Netlink, index: u32) -> Result<u64, NetlinkError> {
    let drops = netlink.drops(index)?;
    let qdisc = netlink.root_qdisc(index)?;
    Ok(drops.transmit + drops.receive + u64::from(qdisc.drops))
}
