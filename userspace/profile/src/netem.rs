//! netem in its own terms, what its users write and read of it, and profiles made of it and for it.
//!
//! | text | where it is from |
//! |---|---|
//! | `delay 100ms 10ms loss 1%` | tc-netem(8), with or without `tc qdisc add dev eth0 root netem` before it |
//! | `qdisc netem 8001: root refcnt 2 limit 1000 delay 100ms` | `tc -s qdisc show` |
//! | `[{"kind":"netem","options":{…}}]` | `tc -j qdisc show` |
//! | `{"eth0":{"outgoing":{"protocol=ip":{"delay":"10.0ms"}}}}` | tcconfig's `tcshow` |
//!
//! All of them become words of tc-netem(8), which one parser reads ([`words`]). Sources: tc/q_netem.c and lib/utils.c of iproute2,
//! net/sched/sch_netem.c of Linux.

mod export;
mod import;
mod slots;
mod sources;
mod words;

use std::fmt;

use perturb_quantity::{Duration, Probability, Rate, Size};

use crate::model::Framing;

pub use export::{Exported, export};
pub use import::{Imported, import};

/// Why a text is none of netem's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NetemError(String);

/// The options of a netem.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Netem {
    /// Packets that it holds at most.
    limit: u32,
    delay: Duration,
    jitter: Duration,
    /// Of the delay.
    correlation: Probability,
    /// Of the jitter: the name of a table.
    distribution: Option<String>,
    loss: Loss,
    /// What would be lost is marked.
    ecn: bool,
    duplicate: Chance,
    corrupt: Chance,
    reorder: Chance,
    /// At most every so many packets one is reordered; 0 for no limit.
    gap: u32,
    rate: Option<Link>,
    slot: Option<Slot>,
    seed: Option<u64>,
}

impl Netem {
    /// What tc sets if nothing is said.
    const LIMIT: u32 = 1000;
    /// More packets than any path has under way.
    const UNLIMITED: u32 = 1_000_000;

    /// As `tc qdisc change` leaves it where `before` stood: some options stay if they are not said (`netem_change`).
    fn over(mut self, before: Self) -> Self {
        let correlations = |netem: &Self| {
            let loss = match netem.loss {
                Loss::Random(chance) => chance.correlation,
                _ => Probability::ZERO,
            };
            [netem.correlation, loss, netem.duplicate.correlation]
        };
        if correlations(&self) == [Probability::ZERO; 3] {
            let [delay, loss, duplicate] = correlations(&before);
            self.correlation = delay;
            self.duplicate.correlation = duplicate;
            if let Loss::Random(chance) = &mut self.loss {
                chance.correlation = loss;
            }
        }
        if self.corrupt.is_none() {
            self.corrupt = before.corrupt;
        }
        self.distribution = self.distribution.or(before.distribution);
        self.rate = self.rate.or(before.rate);
        self.slot = self.slot.or(before.slot);
        self.ecn |= before.ecn;
        self
    }

    /// Whether what happens to a packet depends on what happened to the one before.
    fn is_correlated(&self) -> bool {
        let loss = match self.loss {
            Loss::Random(chance) => chance,
            _ => Chance::default(),
        };
        let jitter = Chance {
            share: if self.jitter > Duration::ZERO {
                Probability::ONE
            } else {
                Probability::ZERO
            },
            correlation: self.correlation,
        };
        [loss, self.duplicate, self.corrupt, self.reorder, jitter]
            .iter()
            .any(|chance| !chance.is_none() && chance.correlation > Probability::ZERO)
    }

    /// How long it holds a packet at most, but for the rate.
    fn longest(&self) -> Duration {
        let scales = if self.distribution.is_none() { 1 } else { 4 };
        let jitter = self.jitter.nanos().saturating_mul(scales);
        Duration::from_nanos(self.delay.nanos().saturating_add(jitter))
    }

    /// Full frames that are under way at its rate, and count for the limit as those that wait do (`netem_enqueue`); 0 without a
    /// rate.
    fn under_way(&self) -> u64 {
        self.rate.map_or(0, |link| {
            link.rate.bytes_in(self.longest()).div_ceil(link.frame())
        })
    }
}

/// What is lost of a correlation each way: `get_crandom` mixes a number with the last one, and what is mixed is not uniform.
const OTHER_RATES: &str = "what a correlation does to netem's rates, which become lower or higher, and to the spread of its delay, which shrinks: a profile's stay as they are written";

/// A full frame.
const FRAME: u64 = 1514;

/// With a rate, each packet leaves behind the one before it (`netem_enqueue`); at this one a full frame takes 1 ns. A FIFO below
/// the netem keeps no order since Linux 3.3: it gets packets when they leave (`netem_dequeue`).
const IN_ORDER: Rate = Rate::from_bits_per_second(10_000_000_000_000);

impl Default for Netem {
    fn default() -> Self {
        Self {
            limit: Self::LIMIT,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            correlation: Probability::ZERO,
            distribution: None,
            loss: Loss::Random(Chance::default()),
            ecn: false,
            duplicate: Chance::default(),
            corrupt: Chance::default(),
            reorder: Chance::default(),
            gap: 0,
            rate: None,
            slot: None,
            seed: None,
        }
    }
}

/// A probability, and the correlation from one packet to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Chance {
    share: Probability,
    correlation: Probability,
}

impl Chance {
    fn is_none(self) -> bool {
        self.share == Probability::ZERO
    }
}

/// Its models of loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    Random(Chance),
    /// p13, p31, p32, p23, p14.
    State([Probability; 5]),
    /// p, r, 1-h, 1-k.
    Gilbert([Probability; 4]),
}

impl Loss {
    fn is_none(self) -> bool {
        matches!(self, Self::Random(chance) if chance.is_none())
    }
}

/// A link's rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Link {
    rate: Rate,
    /// Bytes of each packet besides.
    packet_overhead: i32,
    /// Bytes that a cell carries; 0 for no cells.
    cell_size: u32,
    /// Bytes of each cell besides.
    cell_overhead: i32,
}

impl Link {
    /// What a full frame takes, bytes.
    fn frame(self) -> u64 {
        Framing::from(self)
            .on_wire(Size::from_bytes(FRAME))
            .bytes()
            .max(1)
    }

    /// Without overheads.
    const fn plain(rate: Rate) -> Self {
        Self {
            rate,
            packet_overhead: 0,
            cell_size: 0,
            cell_overhead: 0,
        }
    }
}

/// When packets that have waited may go.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Slot {
    between: Between,
    /// At most, in one slot; 0 for any number.
    packets: u32,
    /// At most, in one slot; 0 for any number.
    bytes: u32,
}

/// The time to the next slot.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Between {
    /// Evenly between these.
    Range(Duration, Duration),
    /// The name of the table, unless tc did not say it; mean and scale.
    Table(Option<String>, Duration, Duration),
}

/// As tc-netem(8) has it, without `netem`.
impl fmt::Display for Netem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut options: Vec<String> = Vec::new();
        let mut put = |option: String| options.push(option);
        let tail = |correlation: Probability| match correlation {
            Probability::ZERO => String::new(),
            other => format!(" {other}"),
        };
        if self.limit != Self::LIMIT {
            put(format!("limit {}", self.limit));
        }
        if self.jitter > Duration::ZERO {
            put(format!(
                "delay {} {}{}",
                self.delay,
                self.jitter,
                tail(self.correlation)
            ));
            if let Some(name) = &self.distribution {
                put(format!("distribution {name}"));
            }
        } else if self.delay > Duration::ZERO {
            put(format!("delay {}", self.delay));
        }
        match self.loss {
            Loss::Random(chance) if chance.is_none() => {}
            Loss::Random(chance) => {
                put(format!(
                    "loss random {}{}",
                    chance.share,
                    tail(chance.correlation)
                ));
            }
            Loss::State([p13, p31, p32, p23, p14]) => {
                put(format!("loss state {p13} {p31} {p32} {p23} {p14}"));
            }
            Loss::Gilbert([p, r, h, k]) => put(format!("loss gemodel {p} {r} {h} {k}")),
        }
        if self.ecn {
            put("ecn".to_owned());
        }
        for (word, chance) in [
            ("corrupt", self.corrupt),
            ("duplicate", self.duplicate),
            ("reorder", self.reorder),
        ] {
            if !chance.is_none() {
                put(format!("{word} {}{}", chance.share, tail(chance.correlation)));
            }
        }
        if self.gap > 0 {
            put(format!("gap {}", self.gap));
        }
        if let Some(link) = &self.rate {
            put(link.to_string());
        }
        if let Some(slot) = &self.slot {
            put(slot.to_string());
        }
        if let Some(seed) = self.seed {
            put(format!("seed {seed}"));
        }
        f.write_str(&options.join(" "))
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = Rate::from_bits_per_second(self.rate.bits_per_second()).to_string();
        write!(f, "rate {}", rate.trim_end_matches("/s"))?;
        let rest = [
            i64::from(self.packet_overhead),
            self.cell_size.into(),
            self.cell_overhead.into(),
        ];
        let said = rest
            .iter()
            .rposition(|&value| value != 0)
            .map_or(0, |last| last + 1);
        rest.iter().take(said).try_for_each(|value| write!(f, " {value}"))
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.between {
            Between::Range(least, most) => write!(f, "slot {least} {most}")?,
            Between::Table(name, mean, scale) => {
                let name = name.as_deref().unwrap_or("uniform");
                write!(f, "slot distribution {name} {mean} {scale}")?;
            }
        }
        if self.packets > 0 {
            write!(f, " packets {}", self.packets)?;
        }
        if self.bytes > 0 {
            write!(f, " bytes {}", self.bytes)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
