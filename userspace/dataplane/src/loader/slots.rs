//! The places of servers' states and buffers.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Which slots the servers have, by name, and by which paths packets go. Whoever updates an emulation needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slots {
    /// Behind the slot that was given last: what a server has left behind is found by others as late as can be.
    #[serde(default)]
    next: u32,
    /// State and counter slots.
    servers: BTreeMap<String, u32>,
    /// First ring slot and length of packet-limited buffers.
    rings: BTreeMap<String, (u32, u32)>,
    /// What stands for the paths of the profile's packets.
    #[serde(default)]
    pub(super) ways: u64,
    #[serde(default)]
    pub(super) clock: Clock,
    /// The slots of servers whose law remembers, and its kind.
    #[serde(default)]
    pub(super) memories: BTreeSet<(u32, u32)>,
}

/// The clock of the profile's timelines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Clock {
    /// When it was put in force, ticks; 0: the profile has none.
    pub(super) applied: u64,
    /// Where in the CLOCKS map its first packet is.
    pub(super) place: u32,
}

impl Slots {
    /// The slot of a server.
    #[must_use]
    pub fn of(&self, server: &str) -> Option<u32> {
        self.servers.get(server).copied()
    }

    /// New names get slots that no server has, of so many; and as far as there are any, slots that none of the profile in force
    /// has, for its packets go on until the new one is in force, and it may come back (`go_back`). The slots that are new.
    pub(super) fn assign(&mut self, servers: &[String], in_force: &Self, room: u32) -> Vec<u32> {
        let taken: BTreeSet<u32> = self.servers.values().copied().collect();
        let used: BTreeSet<u32> = in_force.servers.values().copied().collect();
        let vacant = (0..room)
            .map(|turn| (self.next + turn) % room)
            .filter(|slot| !taken.contains(slot));
        let (busy, idle): (Vec<u32>, Vec<u32>) = vacant.partition(|slot| used.contains(slot));
        let mut fresh = Vec::new();
        let mut slots = idle.into_iter().chain(busy);
        for server in servers {
            if self.of(server).is_none()
                && let Some(slot) = slots.next()
            {
                self.servers.insert(server.clone(), slot);
                self.next = (slot + 1) % room;
                fresh.push(slot);
            }
        }
        fresh
    }

    /// Names that the profile no longer has give their places back.
    pub(super) fn retain(&mut self, names: &[String]) {
        let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        self.servers.retain(|name, _| names.contains(name.as_str()));
        self.rings.retain(|name, _| names.contains(name.as_str()));
    }

    /// A gap of `len` of `room` ring slots; `true` if it is new to this server.
    pub(super) fn ring(&mut self, server: &str, len: u32, room: u32) -> Option<(u32, bool)> {
        if let Some(&(start, had)) = self.rings.get(server)
            && had == len
        {
            return Some((start, false));
        }
        self.rings.remove(server);
        let mut used: Vec<(u32, u32)> = self.rings.values().copied().collect();
        used.sort_unstable();
        let mut start = 0;
        for (other, length) in used {
            if other - start >= len {
                break;
            }
            start = other + length;
        }
        if start.checked_add(len).is_none_or(|end| end > room) {
            return None;
        }
        self.rings.insert(server.into(), (start, len));
        Some((start, true))
    }
}
