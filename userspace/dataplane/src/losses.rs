//! What the devices of an emulation drop, as the kernel counts it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use perturb_common::{
    abi::{Event, HELD_ALL, HELD_LOST},
    memory::{Held, UNIT},
};

use crate::{
    emulation::EmulationError,
    maps::Maps,
    netlink::{Netlink, NetlinkError},
};

/// Packets that devices dropped, and what they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// By the hold device: TAP, veth, sch_fq.
    pub hold: u64,
    /// By the splitter; by a switch's TAPs, what it did not read in time.
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
    /// Packets dropped by hold devices whose memory is no longer counted.
    settled: u64,
    /// Since when no packet has waited, and how many had been captured then.
    at_rest: Option<(Instant, u64)>,
}

/// A packet does not take so long between two devices.
const PASSAGE: Duration = Duration::from_millis(500);

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

    /// The sum over all interfaces, and the memory that sch_fq's packets take, bytes.
    ///
    /// The programs charge it when they hold a packet, and take it back when it comes out; of what devices have dropped in
    /// between they do not hear. That is taken back here, at the average of what was held; and once all packets have left, what
    /// the average was wrong by.
    pub(crate) fn settle(&mut self, maps: &mut Maps) -> Result<(Losses, u64), EmulationError> {
        let before = captured(maps)?;
        let losses = self.total()?;
        let lost = Held(maps.held.get(&HELD_LOST, 0).map_err(EmulationError::Held)?);
        let told = Held(maps.held.get(&HELD_ALL, 0).map_err(EmulationError::Held)?);
        let here = maps.held_here.get(&0, 0).map_err(EmulationError::Held)?;
        let held = here
            .iter()
            .fold(told, |sum, &more| sum.and(Held(more)))
            .without(lost);
        // A packet counts as captured before its memory is charged: what is charged here had been captured before the rest
        // began, and has left since.
        let rests = losses.waiting == 0 && captured(maps)? == before;
        let since = match self.at_rest {
            Some((since, captured)) if rests && captured == before => since,
            _ => Instant::now(),
        };
        self.at_rest = rests.then_some((since, before));
        let gone = if rests && since.elapsed() >= PASSAGE {
            held
        } else {
            held.share(losses.hold.saturating_sub(self.settled))
        };
        self.settled = losses.hold;
        if gone != Held::default() {
            maps.held
                .set(HELD_LOST, lost.and(gone).0, 0)
                .map_err(EmulationError::Held)?;
        }
        let units = held.without(gone).units();
        Ok((losses, u64::try_from(units).unwrap_or(0) * UNIT))
    }
}

/// Packets captured so far.
fn captured(maps: &Maps) -> Result<u64, EmulationError> {
    let counts = maps.events.get(&(Event::Captured as u32), 0);
    Ok(counts.map_err(EmulationError::Held)?.iter().sum())
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
pub(crate) fn dropped(netlink: &mut Netlink, index: u32) -> Result<u64, NetlinkError> {
    let drops = netlink.drops(index)?;
    let qdisc = netlink.root_qdisc(index)?;
    Ok(drops.transmit + drops.receive + u64::from(qdisc.drops))
}
