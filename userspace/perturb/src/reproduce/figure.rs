//! What can be reproduced: one entry per figure or table of a paper.

use serde::Serialize;

use super::{experiment::Signals, outcome::Outcome};

/// The five papers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paper {
    Martin,
    Nomura,
    Eom,
    MoritzFrank,
    Salisbury,
}

impl Paper {
    pub(crate) const ALL: [Self; 5] = [
        Self::Martin,
        Self::Nomura,
        Self::Eom,
        Self::MoritzFrank,
        Self::Salisbury,
    ];

    /// How the names of its figures begin.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Martin => "martin",
            Self::Nomura => "nomura",
            Self::Eom => "eom",
            Self::MoritzFrank => "moritz-frank",
            Self::Salisbury => "salisbury",
        }
    }

    /// Authors and year.
    pub(crate) const fn citation(self) -> &'static str {
        match self {
            Self::Martin => "Martin 1999",
            Self::Nomura => "Nomura, Matsuba and Ishikawa 2007",
            Self::Eom => "Eom and Hollingsworth 2000",
            Self::MoritzFrank => "Moritz and Frank 2001",
            Self::Salisbury => "Salisbury, Chen and Melhem 1999",
        }
    }
}

/// What our numbers come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Means {
    /// Equations, or a predictor of the papers.
    Model,
    /// A program that runs on an emulated network.
    Emulation,
}

impl Means {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Emulation => "emulation",
        }
    }
}

/// What it takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Needs {
    pub root: bool,
    pub mpi: bool,
    pub minutes: f64,
    /// With `--quick`; absent where that changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quick_minutes: Option<f64>,
}

/// A difference between the paper's set-up and ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Differs {
    pub what: &'static str,
    pub why: &'static str,
}

/// How a figure is drawn this time.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub quick: bool,
    /// Where its experiments leave their files.
    pub directory: std::path::PathBuf,
    /// What those that measure are told.
    pub signals: Signals,
}

/// A figure or table.
#[derive(Debug)]
pub(crate) struct Figure {
    pub name: &'static str,
    pub paper: Paper,
    pub shows: &'static str,
    pub means: Means,
    pub needs: Needs,
    pub differs: &'static [Differs],
    pub draw: fn(&Setting) -> anyhow::Result<Outcome>,
}

/// Less than a second.
const MOMENT: f64 = 0.02;

impl Figure {
    /// One that equations give within a second.
    pub(crate) const fn model(
        paper: Paper,
        name: &'static str,
        shows: &'static str,
        draw: fn(&Setting) -> anyhow::Result<Outcome>,
    ) -> Self {
        Self {
            name,
            paper,
            shows,
            means: Means::Model,
            needs: Needs {
                root: false,
                mpi: false,
                minutes: MOMENT,
                quick_minutes: None,
            },
            differs: &[],
            draw,
        }
    }

    /// One that is measured on an emulated network, in so many minutes.
    pub(crate) const fn emulation(
        paper: Paper,
        name: &'static str,
        shows: &'static str,
        minutes: f64,
        draw: fn(&Setting) -> anyhow::Result<Outcome>,
    ) -> Self {
        let mut figure = Self::model(paper, name, shows, draw);
        figure.means = Means::Emulation;
        figure.needs.root = true;
        figure.needs.minutes = minutes;
        figure
    }

    /// It has a form that takes so many minutes.
    pub(crate) const fn quick(mut self, minutes: f64) -> Self {
        self.needs.quick_minutes = Some(minutes);
        self
    }

    /// What differs in the set-up, and why.
    pub(crate) const fn differs(mut self, differs: &'static [Differs]) -> Self {
        self.differs = differs;
        self
    }
}
