//! A calibration as a table and as JSON.

use std::fmt;

use perturb_emulator::status::{Fault, lost};
use perturb_present::{Digits, Table};
use perturb_profile::Knob;
use serde::Serialize;

use super::{
    judge::{Cross, Judgement, Verdict},
    knob::{Sabotage, Setting, parameter},
    measurement::Summary,
    provenance::Provenance,
    signature::Signature,
};
use crate::{estimate::Parameters, judged::Judged};

/// One setting, judged.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Which knob was turned.
    #[serde(serialize_with = "parameter")]
    pub knob: Knob,
    /// To what: microseconds, or ns per byte.
    pub desired: f64,
    /// What was observed, the machine's own share included.
    pub observed: Parameters,
    /// Whether the knob is within its tolerance, or hidden behind the machine's own.
    pub ok: bool,
    #[serde(flatten)]
    pub judgement: Judgement,
    /// Everything else that was measured.
    pub measured: Summary,
}

impl Measured {
    /// A setting with its judgement.
    #[must_use]
    pub fn new(setting: Setting, measured: Summary, judgement: Judgement) -> Self {
        Self {
            knob: setting.knob,
            desired: setting.desired,
            observed: measured.observed,
            ok: judgement.compared.verdict.passes(),
            judgement,
            measured,
        }
    }
}

/// Whether the emulator may be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every knob does what it says, wherever this machine lets it be seen.
    Pass,
    /// One does not, or that could not be decided, or it could be seen nowhere.
    Fail,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pass => "pass",
            Self::Fail => "FAIL",
        })
    }
}

/// A calibration.
#[derive(Clone, Debug, Serialize)]
pub struct Calibration {
    /// The verdict on all of it.
    pub verdict: Outcome,
    /// The settings.
    pub settings: Vec<Measured>,
    /// The emulation attached, nothing added.
    pub control: Parameters,
    /// Everything that was measured then.
    pub control_measured: Summary,
    /// Without emulation.
    pub off: Parameters,
    /// Everything that was measured then.
    pub off_measured: Summary,
    /// The signature of a known network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
    /// Packets that were lost though no profile asked for it. Any makes the calibration fail, as any other fault does.
    pub unintended_drops: u64,
    /// Where, and how many.
    pub faults: Vec<Fault>,
    /// Set if the emulator was made wrong on purpose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sabotage: Option<Sabotage>,
    /// How long it took, seconds.
    pub elapsed_s: f64,
    /// Where, when and how.
    pub provenance: Provenance,
}

impl Calibration {
    /// Draws the conclusion.
    #[must_use]
    pub(super) fn new(
        settings: Vec<Measured>,
        (control, off): (Summary, Summary),
        signature: Option<Signature>,
        faults: Vec<Fault>,
        sabotage: Option<Sabotage>,
        elapsed_s: f64,
        provenance: Provenance,
    ) -> Self {
        let passes = settings.iter().all(|setting| setting.ok)
            && hidden(&verdicts(&settings)).is_empty()
            && faults.is_empty();
        Self {
            verdict: if passes { Outcome::Pass } else { Outcome::Fail },
            settings,
            control: control.observed,
            control_measured: control,
            off: off.observed,
            off_measured: off,
            signature,
            unintended_drops: lost(&faults),
            faults,
            sabotage,
            elapsed_s,
            provenance,
        }
    }

    /// The controls and the settings; those that are not as they should be stand out.
    pub(super) fn table(&self) -> Table {
        let mut table = Table::new(1, &COLUMNS);
        table.row(control_row("off", &self.off));
        table.row(control_row("control", &self.control));
        for setting in &self.settings {
            table.push(row(setting), !setting.ok);
        }
        table
    }

    /// Its settings, and what was done to packets that nobody asked for.
    #[must_use]
    pub fn judged(&self) -> Vec<Judged> {
        let of = |setting: &Measured| {
            let unit = setting.knob.unit();
            Judged {
                name: format!("{} {} {unit}", setting.knob.parameter(), number(setting.desired)),
                said: setting.judgement.compared.said(unit),
                passes: setting.ok,
            }
        };
        let faults = self.faults.iter().map(fault);
        self.settings.iter().map(of).chain(faults).collect()
    }

    /// What people must be told beside the table.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let undecided = |setting: &&Measured| setting.judgement.compared.verdict == Verdict::Undecided;
        let open = self.settings.iter().filter(undecided).count();
        if open > 0 {
            let what = if open == 1 {
                "1 setting is undecided: its interval is".to_owned()
            } else {
                format!("{open} settings are undecided: their intervals are")
            };
            warnings.push(format!(
                "{what} wider than the tolerance, so this machine is too busy now; end other programs (they took {:.0} % \
                 of a processor) and calibrate again",
                100.0 * self.provenance.busy_share
            ));
        }
        for knob in hidden(&verdicts(&self.settings)) {
            warnings.push(format!(
                "this machine is slower than every setting of {}, which hides it",
                knob.parameter()
            ));
        }
        for setting in &self.settings {
            for cross in unexplained(&setting.judgement) {
                warnings.push(format!(
                    "{} = {} {}: {} changed by {:+.1} {}, more than {:.1}, and LogGP does not say why",
                    setting.knob.parameter(),
                    number(setting.desired),
                    setting.knob.unit(),
                    cross.parameter.parameter(),
                    cross.change,
                    cross.parameter.unit(),
                    cross.tolerance
                ));
            }
        }
        warnings.extend(self.faults.iter().map(ToString::to_string));
        warnings
    }
}

/// What no profile asks for.
pub(super) fn fault(fault: &Fault) -> Judged {
    Judged {
        name: "packets".into(),
        said: fault.to_string(),
        passes: false,
    }
}

fn verdicts(settings: &[Measured]) -> impl Iterator<Item = (Knob, Verdict)> + Clone {
    let of = |setting: &Measured| (setting.knob, setting.judgement.compared.verdict);
    settings.iter().map(of)
}

/// Knobs all of whose settings are hidden.
pub(super) fn hidden(verdicts: &(impl Iterator<Item = (Knob, Verdict)> + Clone)) -> Vec<Knob> {
    let seen = |knob: Knob| {
        let mut of_knob = verdicts.clone().filter(|(other, _)| *other == knob).peekable();
        of_knob.peek().is_none() || of_knob.any(|(_, verdict)| verdict != Verdict::Hidden)
    };
    Knob::LOGGP.into_iter().filter(|&knob| !seen(knob)).collect()
}

fn unexplained(judgement: &Judgement) -> impl Iterator<Item = &Cross> {
    let open = |cross: &&Cross| cross.flagged && cross.reason.is_none();
    judgement.cross.iter().filter(open)
}

/// The columns of the table.
const COLUMNS: [&str; 9] = [
    "knob", "desired", "o us", "g us", "L us", "G ns/B", "error", "may be", "verdict",
];

/// One row.
fn row(setting: &Measured) -> Vec<String> {
    let judgement = &setting.judgement;
    let mut cells = vec![
        setting.knob.parameter().to_owned(),
        format!("{} {}", number(setting.desired), setting.knob.unit()),
    ];
    cells.extend(Knob::LOGGP.iter().map(|&knob| {
        let mark = judgement
            .cross
            .iter()
            .find(|cross| cross.parameter == knob && cross.flagged)
            .map_or("", |cross| if cross.reason.is_some() { "*" } else { "!" });
        format!("{}{mark}", number(setting.observed.of(knob)))
    }));
    cells.extend(judgement.compared.cells());
    cells
}

/// The row of a control.
fn control_row(name: &str, observed: &Parameters) -> Vec<String> {
    let mut cells = vec![name.to_owned(), "-".to_owned()];
    cells.extend(Knob::LOGGP.iter().map(|&knob| number(observed.of(knob))));
    cells.extend(["-"; 3].map(str::to_owned));
    cells
}

/// A number, or a dash: four digits, at most two of them behind the point, as no clock here sees less.
#[must_use]
pub(super) fn number(value: impl Into<Option<f64>>) -> String {
    Digits::of(4).decimals(2).write(value)
}

/// Why flagged cross-effects are as they are, each reason once.
#[must_use]
pub(super) fn reasons(settings: &[Measured]) -> Vec<String> {
    let mut reasons: Vec<String> = Vec::new();
    for setting in settings {
        for cross in &setting.judgement.cross {
            if let Some(reason) = cross.reason {
                let line = format!(
                    "{} -> {}: {reason}",
                    setting.knob.parameter(),
                    cross.parameter.parameter()
                );
                if !reasons.contains(&line) {
                    reasons.push(line);
                }
            }
        }
    }
    reasons
}

impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.table())?;
        for reason in reasons(&self.settings) {
            writeln!(f, "* {reason}")?;
        }
        if let Some(signature) = &self.signature
            && let Some(reading) = &signature.reading
        {
            writeln!(
                f,
                "signature of o {} us, g {} us, L {} us: o_s {:.1} us, g {:.1} us, L + g {:.1} us, of o_r {:.1} us on \
                 the issuing processor",
                signature.network.overhead_us,
                signature.network.gap_us,
                signature.network.latency_us,
                reading.send_us,
                reading.gap_us,
                reading.latency_us,
                reading.receive_us
            )?;
        }
        let count = |wanted| {
            let verdicts = self
                .settings
                .iter()
                .map(|setting| setting.judgement.compared.verdict);
            verdicts.filter(|verdict| *verdict == wanted).count()
        };
        write!(
            f,
            "{}: {} of {} settings within their tolerance",
            self.verdict,
            count(Verdict::Right),
            self.settings.len()
        )?;
        if count(Verdict::Hidden) > 0 {
            let hidden = count(Verdict::Hidden);
            write!(f, ", {hidden} hidden: this machine itself is slower (control)")?;
        }
        writeln!(f, ", in {:.0} s", self.elapsed_s)
    }
}
