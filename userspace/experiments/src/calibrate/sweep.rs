//! Turns each knob through its range with the others at their baseline, and measures everything at every setting.
//!
//! ```text
//! off ── control ── knob 1: settings ── control ── knob 2: settings ── … ── control ── signature
//! ```
//!
//! The control is the emulation attached with nothing added: packets take the same way, are held for no time. It is
//! measured again after each knob, so that a machine that changes meanwhile does not pass for a knob that is wrong. The
//! settings of a knob are measured in an order drawn at random: a machine that slows down is no slope.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use perturb_emulator::{
    conduct::{Pacer, Pacing},
    prepared::Prepared,
};
use perturb_present::{LiveLine, Parts};
use perturb_profile::Knob;
use perturb_stats::SplitMix64;

use super::{
    calibration::{Calibration, Measured},
    judge,
    knob::{Sabotage, Setting, range},
    measurement::{Effort, Samples, Summary},
    provenance::Provenance,
    signature,
};
use crate::{estimate::Parameters, hosts::Hosts, probe::clock};

/// How long the machine is watched for other programs.
const WATCH: Duration = Duration::from_millis(200);
/// Half an interval of this share of the tolerance is tight enough.
const TIGHT: f64 = 0.25;
/// All there is time for: a few hundred packets for each number.
const THOROUGH: Effort = Effort {
    lone: 150,
    bursts: 8,
    burst_us: 60_000.0,
    trips_us: 600_000.0,
    stream_us: 400_000.0,
    rounds: 4,
};
/// What tells a knob that is 10 % off from one that is not.
const QUICK: Effort = Effort {
    lone: 48,
    bursts: 5,
    burst_us: 20_000.0,
    trips_us: 60_000.0,
    stream_us: 60_000.0,
    rounds: 3,
};
/// G of a network that any machine keeps up with packet by packet; --quick leaves faster ones out, ns per byte.
const SLOW_BYTE_NS: f64 = 20.0;
/// No further round is begun after this.
const QUICK_LIMIT: Duration = Duration::from_secs(30);
const THOROUGH_LIMIT: Duration = Duration::from_secs(240);

#[derive(Clone, Debug)]
pub struct Request {
    /// Which knobs.
    pub knobs: Vec<Knob>,
    /// In less than 45 s.
    pub quick: bool,
    /// Who keeps the time.
    pub pacing: Pacing,
    /// Of the order of the settings, and of the profiles.
    pub seed: u64,
    /// Wrong on purpose.
    pub sabotage: Option<Sabotage>,
}

impl Request {
    pub(super) fn effort(&self) -> (Effort, Duration) {
        if self.quick {
            (QUICK, QUICK_LIMIT)
        } else {
            (THOROUGH, THOROUGH_LIMIT)
        }
    }
}

/// Raw samples, by the name of what was set.
pub type Raw = Vec<(String, Samples)>;

/// Measures all settings between the hosts.
pub(super) fn run(
    request: &Request,
    mut hosts: Hosts,
    line: &LiveLine,
) -> anyhow::Result<(Calibration, Raw)> {
    let start = Instant::now();
    let (effort, limit) = request.effort();
    let pacer = request.pacing.choice.decide()?;
    // It has nobody's processor time: o cannot be turned, and the signature's network has one.
    let burns = pacer != Pacer::Switch;
    let clock_ns = clock::cost();
    let busy_share = clock::stolen_share(WATCH);
    let baseline = Parameters::default();

    let mut settings = range(&request.knobs);
    if !burns && request.knobs.contains(&Knob::Overhead) {
        log::info!(
            "o is left out, and so is the signature: the pacer switch burns no processor time of the hosts"
        );
        settings.retain(|setting| setting.knob != Knob::Overhead);
    }
    if request.quick {
        settings.retain(|setting| setting.knob != Knob::Bandwidth || setting.desired >= SLOW_BYTE_NS);
    }
    // Without emulation, the control, and the signature.
    let parts = Parts::new(line, settings.len() + 3);
    parts.begin(0, "emulation off");
    let mut off = Samples::default();
    off.measure(&mut hosts, &baseline, &effort, clock_ns)?;
    let prepared = |added: Parameters| -> anyhow::Result<Prepared> {
        let profile = added
            .sabotaged(request.sabotage)
            .profile(request.seed)
            .context("the calibration's own profile")?;
        Ok(Prepared::of(profile, &perturb_emulator::lab::all_addresses(2))?)
    };
    let mut control = Samples::default();
    hosts.set(prepared(baseline)?)?;
    parts.begin(1, "control");
    control.measure(&mut hosts, &baseline, &effort, clock_ns)?;

    let mut samples: Vec<(Setting, Samples)> = Vec::new();
    let by_value = settings.clone();
    let mut random = SplitMix64::new(request.seed);
    for knob in settings.chunk_by_mut(|one, other| one.knob == other.knob) {
        random.shuffle(knob);
    }
    for (index, &setting) in settings.iter().enumerate() {
        let (knob, unit) = (setting.knob.parameter(), setting.knob.unit());
        parts.begin(index + 2, format_args!("{knob} {} {unit}", setting.desired));
        let added = Parameters::by(setting);
        hosts.set(prepared(added)?)?;
        let mut seen = Samples::default();
        loop {
            seen.measure(&mut hosts, &added, &effort, clock_ns)?;
            let wide = judge::half_width(setting.knob, &seen.summary()?) > TIGHT * judge::tolerance(setting);
            if !wide || seen.rounds >= effort.rounds || start.elapsed() > limit {
                break;
            }
        }
        samples.push((setting, seen));
        let last_of_knob = settings
            .get(index + 1)
            .is_none_or(|next| next.knob != setting.knob);
        if last_of_knob {
            hosts.set(prepared(baseline)?)?;
            control.measure(&mut hosts, &baseline, &effort, clock_ns)?;
        }
    }
    samples.sort_by_key(|(setting, _)| by_value.iter().position(|other| other == setting));
    parts.begin(settings.len() + 2, "signature");
    let mut signature = None;
    if burns {
        hosts.set(prepared(signature::NETWORK)?)?;
        signature = signature::measure(&hosts, &effort)?;
    }
    let faults = hosts.faults()?;
    let offloads = hosts.offloads()?;
    hosts.clear()?;

    let profile = (request.seed, baseline.profile(request.seed)?.to_string());
    let provenance = Provenance::here(pacer.name(), offloads, clock_ns, busy_share, profile);
    let control_summary = control.summary()?;
    let measured = |(setting, seen): &(Setting, Samples)| -> anyhow::Result<Measured> {
        let summary = seen.summary()?;
        let judgement = judge::judge(*setting, &summary, &control_summary);
        Ok(Measured::new(*setting, summary, judgement))
    };
    let settings = samples.iter().map(measured).collect::<anyhow::Result<_>>()?;
    let off_summary: Summary = off.summary()?;
    let calibration = Calibration::new(
        settings,
        (control_summary, off_summary),
        signature,
        faults,
        request.sabotage,
        start.elapsed().as_secs_f64(),
        provenance,
    );
    let mut raw: Raw = vec![("off".into(), off), ("control".into(), control)];
    raw.extend(
        samples
            .into_iter()
            .map(|(setting, seen)| (format!("{} {}", setting.knob.parameter(), setting.desired), seen)),
    );
    Ok((calibration, raw))
}
