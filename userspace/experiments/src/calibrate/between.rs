//! `perturb calibrate --peer`: do the knobs add to a real network what they say?
//!
//! Model: [`super::judge`]'s, with a real network in the place of the wire between private hosts, and measured as `perturb measure`
//! measures it: o of this host, L as half of a round trip, g and G of either way. The network's own are those
//! under emulation while nothing is turned (the control). Only what goes between this host and the peer's measuring socket is
//! emulated.
//! What is lacking: intervals. A setting that is not as it should be is measured once more, right behind the control.

use std::{fmt, net::SocketAddr};

use anyhow::{Context as _, bail};
use perturb_emulator::{
    conduct::Pacing,
    prepared::Prepared,
    session::{Core, Handle},
    status::Fault,
};
use perturb_present::{LiveLine, Parts, Table};
use perturb_profile::{Knob, Match, PortRange, Prefix, Profile, Protocol};
use serde::Serialize;

use super::{
    calibration::{Outcome, fault, hidden, number},
    judge::{self, Compared, Verdict},
    knob::{Sabotage, Setting, parameter, range},
};
use crate::{
    estimate::Parameters,
    hosts,
    judged::Judged,
    measure::{self, Direction, Effort, PARTS, QUICK, Reached, Size, THOROUGH, Ways},
};

/// G of the settings that --quick has, ns per byte: faster ones need many packets, slower ones much time.
const QUICK_BYTE_NS: std::ops::Range<f64> = 20.0..1_000.0;
const UDP: Protocol = Protocol(17);

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Where `perturb measure serve` runs.
    pub peer: String,
    /// The interface here that leads there.
    pub interface: String,
    /// Which knobs.
    pub knobs: Vec<Knob>,
    /// Fewer samples, and settings.
    pub quick: bool,
    /// Who keeps the time.
    pub pacing: Pacing,
    /// Of the profiles.
    pub seed: u64,
    /// Wrong on purpose.
    pub sabotage: Option<Sabotage>,
}

/// A setting, one way or both.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Which knob was turned.
    #[serde(serialize_with = "parameter")]
    pub knob: Knob,
    /// To what: microseconds, or ns per byte.
    pub desired: f64,
    /// `there`, `back`, or `both`; of o `send`, o_s, or `both`, its mean with o_r.
    pub way: &'static str,
    /// The network's own.
    pub own: f64,
    #[serde(flatten)]
    pub compared: Compared,
}

/// All settings.
#[derive(Clone, Debug, Serialize)]
pub struct Between {
    /// Whether all are as asked, and each knob is seen at all.
    pub verdict: Outcome,
    /// The peer.
    pub peer: String,
    /// The interface.
    pub interface: String,
    /// The network without emulation, on the way there.
    pub network: Parameters,
    /// One for each setting and way.
    pub settings: Vec<Row>,
    /// What was done to packets that no profile asks for: any makes the calibration fail.
    pub faults: Vec<Fault>,
}

/// Calibrates; nothing if a signal came before the end.
pub(super) fn run(request: Asked, line: LiveLine) -> anyhow::Result<Option<Between>> {
    let reached = measure::reach(&request.peer)?;
    let (interface, pacing) = (request.interface.clone(), request.pacing);
    hosts::on_interface(&interface, pacing, move |session| {
        measured(request, reached, &session, &line)
    })
}

fn measured(
    request: Asked,
    mut reached: Reached,
    session: &Handle,
    line: &LiveLine,
) -> anyhow::Result<Between> {
    let effort = Effort {
        floods: false,
        ..if request.quick { QUICK } else { THOROUGH }
    };
    let mut settings = range(&request.knobs);
    if request.quick {
        settings
            .retain(|setting| setting.knob != Knob::Bandwidth || QUICK_BYTE_NS.contains(&setting.desired));
    }
    let to = reached.address();
    let parts = Parts::new(line, (settings.len() + 2) * (2 * PARTS + 1));
    let mut ways = |index: usize, name: &str| -> anyhow::Result<Ways> {
        let begun = index * (2 * PARTS + 1);
        let told = |part: usize, what: &str| parts.begin(begun + part, format_args!("{name}: {what}"));
        reached
            .ways(&effort, &told)
            .or_else(|error| {
                log::info!("{name}: {error:#}; it is measured again");
                reached.ways(&effort, &told)
            })
            .with_context(|| name.to_owned())
    };
    let put = |added: Parameters| -> anyhow::Result<()> {
        let added = added.sabotaged(request.sabotage);
        let prepared = Prepared::of(profile(&added, to, request.seed)?, &[])?;
        session.ask(move |core: &mut Core<'_>| core.put(&prepared))?
    };
    let network = parameters(&ways(0, "the network itself")?);
    put(Parameters::default())?;
    let mut control = ways(1, "control")?;
    let report = hosts::settled(session)?;
    if report.is_none_or(|report| report.balance.captured == 0) {
        bail!(
            "nothing that goes to {} crosses {}: `ip route get {}` says which interface leads there",
            request.peer,
            request.interface,
            to.ip()
        );
    }
    let mut rows = Vec::new();
    for (setting, index) in settings.into_iter().zip(2..) {
        let (knob, unit) = (setting.knob.parameter(), setting.knob.unit());
        let name = format!("{knob} {} {unit}", setting.desired);
        put(Parameters::by(setting))?;
        let mut seen = judged(setting, &control, &ways(index, &name)?);
        if seen.iter().any(|row| row.compared.verdict == Verdict::Wrong) {
            // Hosts and network may have changed since.
            put(Parameters::default())?;
            control = ways(index, "control")?;
            put(Parameters::by(setting))?;
            seen = judged(setting, &control, &ways(index, &name)?);
        }
        rows.extend(seen);
    }
    let report = hosts::settled(session)?;
    let faults = report.map_or_else(Vec::new, |report| report.faults());
    let passes = faults.is_empty()
        && rows.iter().all(|row| row.compared.verdict.passes())
        && hidden(&verdicts(&rows)).is_empty();
    Ok(Between {
        verdict: if passes { Outcome::Pass } else { Outcome::Fail },
        peer: request.peer,
        interface: request.interface,
        network,
        settings: rows,
        faults,
    })
}

/// What adds it to what goes between this host and a socket of the peer's.
fn profile(added: &Parameters, to: SocketAddr, seed: u64) -> anyhow::Result<Profile> {
    let mut profile = added.profile(seed).context("the calibration's own profile")?;
    for class in &mut profile.classes {
        class.matching = Match {
            protocol: vec![UDP],
            remote: vec![Prefix::of(to.ip())],
            remote_port: vec![PortRange {
                low: to.port(),
                high: to.port(),
            }],
            ..Match::default()
        };
    }
    Ok(profile)
}

/// g of a direction, or, where a sender hides it, its bound.
fn gap(direction: &Direction) -> f64 {
    let smallest = direction.sizes.first().map_or(0.0, |size| size.gap_us);
    direction.gap_us.unwrap_or(smallest)
}

/// The same of G.
fn gap_per_byte(direction: &Direction) -> f64 {
    let largest = direction.sizes.last();
    let bound = largest.map_or(0.0, |size| 1e3 * size.gap_us / size.wire_bytes as f64);
    direction.gap_per_byte_ns.unwrap_or(bound)
}

/// o_s and o_r of this host.
fn overheads(ways: &Ways) -> [f64; 2] {
    let first = |direction: &Direction, of: fn(&Size) -> f64| direction.sizes.first().map_or(0.0, of);
    [
        first(&ways.out, |size| size.overhead_send_us),
        first(&ways.inward, |size| size.overhead_receive_us),
    ]
}

/// Their mean, o.
fn overhead(ways: &Ways) -> f64 {
    overheads(ways).into_iter().sum::<f64>() / 2.0
}

/// On the way there.
fn parameters(ways: &Ways) -> Parameters {
    Parameters {
        overhead_us: overhead(ways),
        gap_us: gap(&ways.out),
        latency_us: ways.latency_us,
        gap_per_byte_ns: gap_per_byte(&ways.out),
    }
}

fn verdicts(rows: &[Row]) -> impl Iterator<Item = (Knob, Verdict)> + Clone {
    rows.iter().map(|row| (row.knob, row.compared.verdict))
}

/// What is to be said of a setting.
fn judged(setting: Setting, control: &Ways, seen: &Ways) -> Vec<Row> {
    let both = |of: fn(&Direction) -> f64| {
        vec![
            ("there", of(&control.out), of(&seen.out)),
            ("back", of(&control.inward), of(&seen.inward)),
        ]
    };
    let ways = match setting.knob {
        Knob::Overhead => {
            let ([own_send, _], [send, _]) = (overheads(control), overheads(seen));
            // What is burnt before the kernel's stamp is seen in round trips only.
            let (own, more) = (overhead(control), seen.round_trip_us - control.round_trip_us);
            vec![("send", own_send, send), ("both", own, own + more / 2.0)]
        }
        Knob::Latency => vec![("both", control.latency_us, seen.latency_us)],
        Knob::Gap => both(gap),
        _ => both(gap_per_byte),
    };
    let row = |(way, own, seen): (&'static str, f64, f64)| Row {
        knob: setting.knob,
        desired: setting.desired,
        way,
        own,
        compared: judge::compare(setting, own, seen, 0.0),
    };
    ways.into_iter().map(row).collect()
}

impl Between {
    /// Its settings, and what was done to packets that nobody asked for.
    #[must_use]
    pub fn judged(&self) -> Vec<Judged> {
        let of = |row: &Row| {
            let unit = row.knob.unit();
            Judged {
                name: format!(
                    "{} {} {unit}, {}",
                    row.knob.parameter(),
                    number(row.desired),
                    row.way
                ),
                said: row.compared.said(unit),
                passes: row.compared.verdict.passes(),
            }
        };
        self.settings
            .iter()
            .map(of)
            .chain(self.faults.iter().map(fault))
            .collect()
    }
}

impl fmt::Display for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = &self.network;
        writeln!(
            f,
            "{} over {}: o {} us, g {} us, L {} us, G {} ns/B; knobs come on top",
            self.peer,
            self.interface,
            number(own.overhead_us),
            number(own.gap_us),
            number(own.latency_us),
            number(own.gap_per_byte_ns)
        )?;
        let mut table = Table::new(
            1,
            &[
                "knob", "desired", "way", "own", "seen", "error", "may be", "verdict",
            ],
        );
        for row in &self.settings {
            let mut cells = vec![
                row.knob.parameter().to_owned(),
                format!("{} {}", number(row.desired), row.knob.unit()),
                row.way.to_owned(),
                number(row.own),
                number(row.compared.seen),
            ];
            cells.extend(row.compared.cells());
            table.push(cells, !row.compared.verdict.passes());
        }
        write!(f, "{table}")?;
        for knob in hidden(&verdicts(&self.settings)) {
            writeln!(
                f,
                "the network is slower than every setting of {}, which hides it",
                knob.parameter()
            )?;
        }
        for fault in &self.faults {
            writeln!(f, "{fault}")?;
        }
        writeln!(f, "{}", self.verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_measuring_socket_is_emulated() {
        let to = "10.2.0.12:4798".parse().unwrap();
        for setting in range(&Knob::LOGGP) {
            let text = profile(&Parameters::by(setting), to, 1).unwrap().to_string();
            assert!(perturb_profile::parse(&text).is_ok(), "{text}");
            assert!(
                text.contains(r#"protocol: udp, remote: "10.2.0.12", remote_port: 4798"#),
                "{text}"
            );
        }
    }

    #[test]
    fn a_knob_that_does_nothing_is_wrong_and_one_that_is_hidden_is_not() {
        let direction = |gap_us: Option<f64>, spacing: f64| Direction {
            sizes: vec![Size {
                payload_bytes: 64,
                wire_bytes: 106,
                overhead_send_us: 5.0,
                overhead_receive_us: 7.0,
                gap_us: spacing,
                sender_limited: gap_us.is_none(),
            }],
            gap_us,
            gap_per_byte_ns: None,
            bandwidth_bytes_s: None,
            loss: 0.0,
            loss_of: 30,
            buffer_us: None,
            longest_wait_us: 0.0,
            protocol_changes: Vec::new(),
        };
        let ways = |gap_us, spacing| Ways::of(50.0, direction(gap_us, spacing));
        let setting = |desired| Setting {
            knob: Knob::Gap,
            desired,
        };
        let of = |desired, own: f64, seen: &Ways| {
            let rows = judged(setting(desired), &ways(None, own), seen);
            rows.into_iter()
                .map(|row| row.compared.verdict)
                .collect::<Vec<_>>()
        };
        assert_eq!(of(500.0, 5.0, &ways(None, 5.0)), [Verdict::Wrong; 2]);
        assert_eq!(of(500.0, 5.0, &ways(Some(499.0), 499.0)), [Verdict::Right; 2]);
        assert_eq!(of(50.0, 90.0, &ways(None, 90.0)), [Verdict::Hidden; 2]);
        let latency = Setting {
            knob: Knob::Latency,
            desired: 1_000.0,
        };
        let rows = judged(latency, &ways(None, 5.0), &ways(None, 5.0));
        assert_eq!(rows[0].compared.verdict, Verdict::Wrong);
    }
}
