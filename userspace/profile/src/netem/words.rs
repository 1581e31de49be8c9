//! The words of tc-netem(8), as `netem_parse_opt` of iproute2 takes them, and as `netem_print_opt` writes them: with the names of
//! the parameters between them.

use perturb_quantity::{Duration, Probability, Rate};

use super::{Between, Chance, Link, Loss, Netem, NetemError, Slot};

/// In the order in which tc tries them: a word may be cut short.
const OPTIONS: &[&str] = &[
    "limit",
    "latency",
    "delay",
    "loss",
    "drop",
    "seed",
    "ecn",
    "reorder",
    "corrupt",
    "gap",
    "duplicate",
    "distribution",
    "rate",
    "slot",
];

/// Times of tc; without a unit they are nanoseconds (`get_time64`).
const TIMES: &[(&[&str], f64)] = &[
    (&["", "ns", "nsec", "nsecs"], 1.0),
    (&["us", "usec", "usecs"], 1e3),
    (&["ms", "msec", "msecs"], 1e6),
    (&["s", "sec", "secs"], 1e9),
];

/// Rates of tc, in bit/s; `bps` are bytes (`get_rate64`).
const RATES: &[(&[&str], f64)] = &[
    (&["", "bit"], 1.0),
    (&["kbit"], 1e3),
    (&["mbit"], 1e6),
    (&["gbit"], 1e9),
    (&["tbit"], 1e12),
    (&["kibit"], 1024.0),
    (&["mibit"], 1_048_576.0),
    (&["gibit"], 1_073_741_824.0),
    (&["tibit"], 1_099_511_627_776.0),
    (&["bps"], 8.0),
    (&["kbps"], 8e3),
    (&["mbps"], 8e6),
    (&["gbps"], 8e9),
    (&["tbps"], 8e12),
    (&["kibps"], 8192.0),
    (&["mibps"], 8_388_608.0),
    (&["gibps"], 8_589_934_592.0),
    (&["tibps"], 8_796_093_022_208.0),
];

/// Sizes of tc, in powers of 1024 (`get_size64`).
const SIZES: &[(&[&str], f64)] = &[
    (&["", "b"], 1.0),
    (&["k", "kb"], 1024.0),
    (&["m", "mb"], 1_048_576.0),
    (&["g", "gb"], 1_073_741_824.0),
];

/// Words, and where the parser is.
struct Words<'w> {
    words: &'w [&'w str],
    /// What is being read, for messages.
    option: &'static str,
}

impl<'w> Words<'w> {
    fn next(&mut self) -> Option<&'w str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    /// Whether a number follows; `signed`: one that may be below zero.
    fn number_follows(&self, signed: bool) -> bool {
        let first = self.words.first().and_then(|word| word.chars().next());
        first.is_some_and(|first| first.is_ascii_digit() || first == '.' || signed && first == '-')
    }

    /// Passes over the name of a parameter, which `tc qdisc show` writes before it.
    fn label(&mut self, name: &str) {
        if self.words.first() == Some(&name) {
            self.next();
        }
    }

    fn wrong(&self, given: Option<&str>, takes: &str) -> NetemError {
        let option = self.option;
        NetemError(match given {
            Some(word) => format!("netem's `{option}` takes {takes}, not `{word}`"),
            None => format!("netem's `{option}` lacks a value: it takes {takes}"),
        })
    }

    /// A number with one of these units, in the smallest.
    fn quantity(&mut self, units: &[(&[&str], f64)], takes: &str) -> Result<f64, NetemError> {
        let word = self.next();
        word.and_then(|word| {
            let split = word.find(|c: char| c.is_ascii_alphabetic() && !matches!(c, 'e' | 'E'));
            let (number, unit) = word.split_at(split.unwrap_or(word.len()));
            let unit = unit.to_ascii_lowercase();
            let (_, size) = units.iter().find(|(names, _)| names.contains(&unit.as_str()))?;
            let number = number.parse::<f64>().ok()?;
            (number.is_finite() && number >= 0.0).then_some(number * size)
        })
        .ok_or_else(|| self.wrong(word, takes))
    }

    fn time(&mut self) -> Result<Duration, NetemError> {
        let nanos = self.quantity(TIMES, "a time such as 10ms")?;
        Ok(Duration::from_nanos(nanos.round() as u64))
    }

    fn share(&mut self) -> Result<Probability, NetemError> {
        let word = self.next();
        let percent = word.and_then(|word| {
            let number = word.strip_suffix('%').unwrap_or(word).parse::<f64>().ok()?;
            (0.0..=100.0).contains(&number).then_some(number)
        });
        match percent {
            Some(percent) => Ok(Probability::from_billionths((percent * 1e7).round() as u64)),
            None => Err(self.wrong(word, "a percentage from 0% to 100%")),
        }
    }

    /// A percentage, if a number follows.
    fn optional_share(&mut self) -> Result<Option<Probability>, NetemError> {
        self.number_follows(false).then(|| self.share()).transpose()
    }

    /// A probability, and its correlation if that follows.
    fn chance(&mut self) -> Result<Chance, NetemError> {
        Ok(Chance {
            share: self.share()?,
            correlation: self.optional_share()?.unwrap_or_default(),
        })
    }

    fn integer<T: std::str::FromStr>(&mut self) -> Result<T, NetemError> {
        let word = self.next();
        let number = word.and_then(|word| word.parse().ok());
        number.ok_or_else(|| self.wrong(word, "a whole number"))
    }

    fn size(&mut self) -> Result<u32, NetemError> {
        let bytes = self.quantity(SIZES, "a number of bytes or packets")?;
        if bytes <= f64::from(u32::MAX) {
            Ok(bytes as u32)
        } else {
            Err(self.wrong(None, "at most 4294967295"))
        }
    }

    fn name(&mut self) -> Result<String, NetemError> {
        let word = self.next();
        word.map(str::to_owned).ok_or_else(|| {
            self.wrong(
                None,
                "uniform, normal, pareto, paretonormal or the name of a table",
            )
        })
    }

    /// These parameters, named as `tc qdisc show` does, in place of those that `given` has for the ones that do not follow.
    fn chain<const N: usize>(
        &mut self,
        names: [&str; N],
        given: impl Fn(Probability) -> [Probability; N],
    ) -> Result<[Probability; N], NetemError> {
        self.label(names[0]);
        let mut values = given(self.share()?);
        for (name, value) in names.iter().zip(&mut values).skip(1) {
            self.label(name);
            match self.optional_share()? {
                Some(share) => *value = share,
                None => break,
            }
        }
        Ok(values)
    }

    fn loss(&mut self) -> Result<Loss, NetemError> {
        let rest = |share: Probability| {
            Probability::from_billionths(Probability::ONE.billionths() - share.billionths())
        };
        let (zero, one) = (Probability::ZERO, Probability::ONE);
        match self.words.first() {
            Some(&"state") => {
                self.next();
                let states = self.chain(["p13", "p31", "p32", "p23", "p14"], |p| {
                    [p, rest(p), zero, one, zero]
                });
                Ok(Loss::State(states?))
            }
            Some(&"gemodel") => {
                self.next();
                let states = self.chain(["p", "r", "1-h", "1-k"], |p| [p, rest(p), one, zero]);
                Ok(Loss::Gilbert(states?))
            }
            _ => {
                self.label("random");
                self.chance().map(Loss::Random)
            }
        }
    }

    fn link(&mut self) -> Result<Link, NetemError> {
        let bits = self.quantity(RATES, "a rate such as 10mbit")?;
        let mut link = Link {
            rate: Rate::from_bits_per_second(bits as u64),
            packet_overhead: 0,
            cell_size: 0,
            cell_overhead: 0,
        };
        self.label("packetoverhead");
        if self.number_follows(true) {
            link.packet_overhead = self.integer()?;
        }
        self.label("cellsize");
        if self.number_follows(false) {
            link.cell_size = self.integer()?;
        }
        self.label("celloverhead");
        if self.number_follows(true) {
            link.cell_overhead = self.integer()?;
        }
        Ok(link)
    }

    fn slot(&mut self) -> Result<Slot, NetemError> {
        let between = if self.number_follows(false) {
            let least = self.time()?;
            let most = if self.number_follows(false) {
                self.time()?
            } else {
                least
            };
            if most < least {
                return Err(NetemError(format!(
                    "netem's `slot` has its larger delay second, not {least} before {most}"
                )));
            }
            Between::Range(least, most)
        } else {
            let word = self.next();
            if word != Some("distribution") {
                return Err(self.wrong(word, "a time, or `distribution NAME DELAY JITTER`"));
            }
            let name = if self.number_follows(false) {
                None
            } else {
                Some(self.name()?)
            };
            Between::Table(name, self.time()?, self.time()?)
        };
        let mut slot = Slot {
            between,
            packets: 0,
            bytes: 0,
        };
        let begins = |word: Option<&&str>, name: &str| word.is_some_and(|word| name.starts_with(*word));
        if begins(self.words.first(), "packets") {
            self.next();
            slot.packets = self.integer()?;
        }
        if begins(self.words.first(), "bytes") {
            self.next();
            slot.bytes = self.size()?;
        }
        Ok(slot)
    }
}

/// Reads options.
pub(super) fn read(words: &[&str]) -> Result<Netem, NetemError> {
    let mut netem = Netem::default();
    let mut words = Words { words, option: "" };
    while let Some(word) = words.next() {
        let Some(&option) = OPTIONS.iter().find(|option| option.starts_with(word)) else {
            let closest = perturb_quantity::closest(word, OPTIONS.iter().copied());
            let hint = closest.map_or(String::new(), |closest| format!("; did you mean `{closest}`?"));
            let what = format!(
                "netem has no option `{word}`{hint}; it has {}",
                OPTIONS.join(", ")
            );
            return Err(NetemError(what));
        };
        words.option = option;
        match option {
            "limit" => netem.limit = words.size()?,
            "latency" | "delay" => {
                netem.delay = words.time()?;
                if words.number_follows(false) {
                    netem.jitter = words.time()?;
                    netem.correlation = words.optional_share()?.unwrap_or_default();
                }
            }
            "loss" | "drop" if !netem.loss.is_none() => {
                return Err(NetemError("netem takes one model of loss, not two".to_owned()));
            }
            "loss" | "drop" => netem.loss = words.loss()?,
            "seed" => netem.seed = Some(words.integer()?),
            "ecn" => netem.ecn = true,
            "reorder" => netem.reorder = words.chance()?,
            "corrupt" => netem.corrupt = words.chance()?,
            "gap" => netem.gap = words.integer()?,
            "duplicate" => netem.duplicate = words.chance()?,
            "distribution" => netem.distribution = Some(words.name()?),
            "rate" => netem.rate = Some(words.link()?),
            _ => netem.slot = Some(words.slot()?),
        }
    }
    check(netem)
}

/// What `netem_parse_opt` demands of the options together.
fn check(mut netem: Netem) -> Result<Netem, NetemError> {
    let wrong = |what: &str| Err(NetemError(what.to_owned()));
    // The kernel takes a gap alone for certainty (`netem_change`): the manual page has an example.
    if netem.gap > 0 && netem.reorder.is_none() {
        netem.reorder.share = Probability::ONE;
    }
    if !netem.reorder.is_none() && netem.delay == Duration::ZERO {
        return wrong(
            "netem's `reorder` and `gap` need a `delay`: what is reordered goes ahead of what is delayed",
        );
    }
    if netem.ecn && netem.loss.is_none() {
        return wrong("netem's `ecn` needs a `loss`: it marks what would be lost");
    }
    if netem.distribution.is_some() && netem.jitter == Duration::ZERO {
        return wrong("netem's `distribution` needs a `delay` with a jitter");
    }
    if netem.rate.is_some_and(|link| link.rate.bits_per_second() == 0) {
        netem.rate = None;
    }
    Ok(netem)
}
