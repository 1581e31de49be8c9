//! Makes frames of what is told: of each packet what it was when it was captured, and what became of it. A released packet says
//! only when it was to leave; by that, and by its bytes, its story is found.

use std::collections::{HashMap, VecDeque};

use perturb_common::{
    abi::{Event, SIGHTED_CORRUPTED, SIGHTED_DUPLICATED, SIGHTED_MARK, Sight, Sighting},
    units::{MonoNanos, Ticks},
};
use perturb_emulator::sights::Sighted;

/// A packet that has not come out this long after it was to leave will not.
const GIVEN_UP: u64 = 10_000_000_000;
/// Both MAC addresses: a bridge or a router may have written others meanwhile.
const MAC_BYTES: usize = 12;

/// What a frame shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Captured,
    Released,
    Dropped,
}

/// A frame of the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) kind: Kind,
    /// CLOCK_MONOTONIC ns.
    pub(super) time: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) length: u32,
    pub(super) comment: String,
    pub(super) id: Option<u64>,
}

/// What is known of a packet that is held.
#[derive(Clone, Debug)]
struct Story {
    id: Option<u64>,
    class: String,
    /// When it was captured, by the clock.
    captured: u64,
    /// The servers so far.
    way: Vec<Step>,
    /// Bits of what befell it.
    flags: u32,
    /// So many of it are held.
    copies: u32,
    /// A super-packet may come out in parts.
    parts: bool,
    bytes: Vec<u8>,
    length: u32,
}

#[derive(Clone, Debug)]
struct Step {
    server: String,
    /// ns, from server to server.
    took: u64,
    /// ns of it until its service began.
    waited: u64,
}

/// Packets that are held.
#[derive(Default)]
pub(super) struct Stories {
    held: HashMap<Due, VecDeque<Story>>,
    told: u64,
}

/// Direction, and when it is to leave.
type Due = (u32, u64);

impl Stories {
    /// The frame that comes of a record, if one does. Of classes that are left out, `partly`, nothing is known, and nothing is
    /// shown when they are released.
    pub(super) fn tell(&mut self, sighted: Sighted, partly: bool) -> Option<Shown> {
        match sighted.what()? {
            Sight::Folded => self.fold(sighted),
            Sight::Released => self.release(sighted, partly),
            Sight::Refused => self.refuse(&sighted.seen.sighting),
        }
    }

    /// How many packets are held.
    pub(super) fn held(&self) -> u64 {
        let all = self.held.values().flatten();
        all.map(|story| u64::from(story.copies)).sum()
    }

    /// Forgets what was to leave long before `now`; how many packets.
    pub(super) fn forget(&mut self, now: u64) -> u64 {
        let mut gone = 0;
        self.held.retain(|&(_, departure), stories| {
            let stays = departure.saturating_add(GIVEN_UP) > now;
            if !stays {
                gone += stories.iter().map(|story| u64::from(story.copies)).sum::<u64>();
            }
            stays
        });
        gone
    }

    fn fold(&mut self, sighted: Sighted) -> Option<Shown> {
        let way = way(&sighted);
        let Sighted { seen, class, .. } = sighted;
        let (sighting, bytes) = (seen.sighting, whole(&seen.sighting, seen.bytes));
        let length = length(&sighting);
        let first = sighting.position == 0;
        let earlier = if first {
            None
        } else {
            self.take((sighting.direction, sighting.arrival), &bytes, length)
        };
        let copies = if sighting.flags & SIGHTED_DUPLICATED != 0 {
            2
        } else {
            1
        };
        let mut story = earlier.unwrap_or_else(|| Story {
            id: None,
            class: class.unwrap_or_default(),
            captured: sighting.time,
            way: Vec::new(),
            flags: 0,
            copies,
            parts: sighting.segments > 1,
            bytes: Vec::new(),
            length,
        });
        if first {
            self.told += 1;
            story.id = Some(self.told);
        }
        story.way.extend(way);
        story.flags |= sighting.flags;
        story.copies = copies;
        story.bytes = bytes;
        story.length = length;
        if sighting.event != perturb_common::abi::NONE {
            return Some(story.dropped(sighting.time, sighting.event));
        }
        let shown = first.then(|| story.captured(&sighting));
        self.held
            .entry((sighting.direction, sighting.departure))
            .or_default()
            .push_back(story);
        shown
    }

    fn release(&mut self, sighted: Sighted, partly: bool) -> Option<Shown> {
        let (sighting, bytes) = (sighted.seen.sighting, sighted.seen.bytes);
        let bytes = whole(&sighting, bytes);
        let length = length(&sighting);
        let story = self.take((sighting.direction, sighting.departure), &bytes, length);
        let comment = match &story {
            Some(story) => story.released(&sighting),
            None if partly => return None,
            None if sighting.departure == 0 => "released: not emulated any more".into(),
            None => format!(
                "released: {} late; captured before this file begins",
                time(sighting.lateness)
            ),
        };
        Some(Shown {
            kind: Kind::Released,
            time: sighting.time,
            id: story.and_then(|story| story.id),
            bytes,
            length,
            comment,
        })
    }

    fn refuse(&mut self, sighting: &Sighting) -> Option<Shown> {
        let due = (sighting.direction, sighting.departure);
        let length = self.held.get(&due)?.back()?.length;
        // It was told last.
        let bytes = self.held.get(&due)?.back()?.bytes.clone();
        let story = self.take(due, &bytes, length)?;
        Some(story.dropped(sighting.time, sighting.event))
    }

    /// One packet that was to leave then, the one with these bytes if there is one.
    fn take(&mut self, due: Due, bytes: &[u8], length: u32) -> Option<Story> {
        let stories = self.held.get_mut(&due)?;
        let same = |story: &Story| {
            let ends = [story.bytes.get(MAC_BYTES..), bytes.get(MAC_BYTES..)];
            story.length == length && ends[0] == ends[1]
        };
        let place = stories
            .iter()
            .position(same)
            .or_else(|| stories.iter().position(|story| story.length == length))
            .or_else(|| stories.iter().position(|story| story.parts))
            .unwrap_or(0);
        let story = stories.get_mut(place)?;
        let found = story.clone();
        if story.copies > 1 {
            story.copies -= 1;
        } else if story.parts && length < story.length {
            // The others follow; nothing says how many.
            story.copies = 0;
        } else {
            stories.remove(place);
            if stories.is_empty() {
                self.held.remove(&due);
            }
        }
        Some(found)
    }
}

impl Story {
    fn captured(&self, sighting: &Sighting) -> Shown {
        let due = sighting.departure.saturating_sub(sighting.arrival);
        let waits: u64 = self.way.iter().map(|step| step.waited).sum();
        let mut comment = format!("captured: class {}, for {}", self.class, time(due));
        if waits > 0 {
            comment += &format!(", {} of it waiting", time(waits));
        }
        self.shown(Kind::Captured, sighting.time, comment + &self.rest())
    }

    fn dropped(&self, now: u64, event: u32) -> Shown {
        let mut comment = format!("dropped: {}", reason(event));
        if let Some(step) = self.way.last() {
            comment += &format!(" at {}", step.server);
        }
        comment += &format!(", class {}", self.class);
        self.shown(Kind::Dropped, now, comment + &self.rest())
    }

    fn released(&self, sighting: &Sighting) -> String {
        let held = sighting.time.saturating_sub(self.captured);
        let (class, late, held) = (&self.class, time(sighting.lateness), time(held));
        format!(
            "released: class {class}, after {held}, {late} late{}",
            self.rest()
        )
    }

    /// Its servers, and what else befell it.
    fn rest(&self) -> String {
        let mut text = String::new();
        for (step, before) in self
            .way
            .iter()
            .zip(["; "].into_iter().chain(std::iter::repeat(", ")))
        {
            text += &format!("{before}{} {}", step.server, time(step.took));
            if step.waited > 0 {
                text += &format!(" ({} waiting)", time(step.waited));
            }
        }
        for (flag, word) in [
            (SIGHTED_MARK, "marked"),
            (SIGHTED_DUPLICATED, "duplicated"),
            (SIGHTED_CORRUPTED, "corrupted"),
        ] {
            if self.flags & flag != 0 {
                text += &format!("; {word}");
            }
        }
        text
    }

    fn shown(&self, kind: Kind, now: u64, comment: String) -> Shown {
        Shown {
            kind,
            time: now,
            bytes: self.bytes.clone(),
            length: self.length,
            comment,
            id: self.id,
        }
    }
}

/// The servers of a leg.
fn way(sighted: &Sighted) -> Vec<Step> {
    let mut before = MonoNanos(sighted.seen.sighting.arrival).instant().0;
    let crossings = sighted.servers.iter().zip(&sighted.seen.crossings);
    let step = |(server, crossing): (&String, &perturb_common::abi::Crossing)| {
        let took = crossing.time.saturating_sub(before);
        before = crossing.time;
        Step {
            server: server.clone(),
            took: Ticks(took).nanos().0,
            waited: Ticks(crossing.wait).nanos().0,
        }
    };
    crossings.map(step).collect()
}

/// A VLAN tag that lies beside the data goes where it was on the wire.
fn whole(sighting: &Sighting, mut bytes: Vec<u8>) -> Vec<u8> {
    if sighting.vlan != 0 && bytes.len() >= MAC_BYTES {
        // In network order, as the kernel has it.
        let protocol = ((sighting.vlan >> 16) as u16).to_ne_bytes();
        let tag = (sighting.vlan as u16).to_be_bytes();
        bytes.splice(MAC_BYTES..MAC_BYTES, protocol.into_iter().chain(tag));
    }
    bytes
}

fn length(sighting: &Sighting) -> u32 {
    sighting.length + if sighting.vlan == 0 { 0 } else { 4 }
}

/// An event by the name that `status --json` has for it.
fn reason(event: u32) -> &'static str {
    const REASONS: &[(Event, &str)] = &[
        (Event::TailDrop, "tail_drop"),
        (Event::PacketLimit, "packet_limit"),
        (Event::Loss, "loss"),
        (Event::BurstLoss, "burst_loss"),
        (Event::NthLoss, "nth_loss"),
        (Event::Collided, "collided"),
        (Event::Down, "down"),
        (Event::EarlyDrop, "early_drop"),
        (Event::Horizon, "horizon"),
        (Event::HoldFull, "hold_full"),
        (Event::NoSlot, "no_slot"),
        (Event::MemoryLimit, "pacer"),
    ];
    REASONS
        .iter()
        .find(|(known, _)| *known as u32 == event)
        .map_or("unknown", |(_, name)| name)
}

/// A time in the unit that it is said in, exact to three digits at least.
fn time(nanos: u64) -> String {
    let (unit, name) = match nanos {
        0..1000 => return format!("{nanos} ns"),
        1000..1_000_000 => (1e3, "us"),
        1_000_000..1_000_000_000 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    format!("{:.3} {name}", nanos as f64 / unit)
}

#[cfg(test)]
mod tests;
