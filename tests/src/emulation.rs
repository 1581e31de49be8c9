//! What lies between the hosts of a bed: nothing, netem, or perturb.

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::{
    bed::{Bed, INTERFACE},
    edt::Edt,
    product::{Applied, Pacer, Product},
};

/// An emulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emulator {
    /// None: the control.
    Off,
    /// tc-netem, at both ends.
    Netem,
    /// A departure time for sch_fq and nothing else, at both ends.
    Edt,
    /// perturb, at the left end.
    Perturb(Pacer),
}

impl Emulator {
    /// All of them, the control first.
    pub const ALL: [Self; 5] = [
        Self::Off,
        Self::Netem,
        Self::Edt,
        Self::Perturb(Pacer::Fq),
        Self::Perturb(Pacer::User),
    ];

    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Netem => "netem",
            Self::Edt => "plain EDT+fq",
            Self::Perturb(Pacer::Fq) => "perturb fq",
            Self::Perturb(Pacer::User) => "perturb user",
            Self::Perturb(Pacer::Switch) => "perturb switch",
        }
    }
}

/// The same network for each emulator, both ways alike.
#[derive(Clone, Copy, Debug)]
pub struct Link<'a> {
    /// Arguments of `tc qdisc add … netem`.
    pub netem: &'a str,
    /// A profile of perturb.
    pub perturb: &'a str,
    /// For the plain use of fq, which knows nothing else.
    pub delay: Option<Duration>,
}

/// An emulation at work; dropping it ends it.
#[derive(Debug)]
pub enum Emulation<'a> {
    /// Nothing.
    Off,
    /// netem on both ends of a bed.
    Netem(Netem<'a>),
    /// Plain fq on both ends.
    Edt(Edt<'a>),
    /// perturb.
    Perturb(Applied<'a>),
}

impl<'a> Emulation<'a> {
    /// Puts an emulator to work.
    pub fn start(product: &'a Product, bed: &'a Bed, emulator: Emulator, link: Link<'_>) -> Result<Self> {
        Ok(match emulator {
            Emulator::Off => Self::Off,
            Emulator::Netem => {
                let started = Self::Netem(Netem(bed));
                for host in [&bed.left, &bed.right] {
                    host.run(&format!(
                        "tc qdisc add dev {INTERFACE} root netem limit 1000000 {}",
                        link.netem
                    ))?;
                }
                started
            }
            Emulator::Edt => {
                let delay = link.delay.context("plain EDT+fq emulates a delay only")?;
                Self::Edt(Edt::start(bed, delay)?)
            }
            Emulator::Perturb(pacer) => Self::Perturb(product.apply(&bed.left, link.perturb, pacer)?),
        })
    }

    /// Ends it, and says if it dropped what it should not have.
    pub fn stop(self) -> Result<()> {
        if let Self::Perturb(applied) = &self {
            applied.nothing_unintended()?;
        }
        self.end()
    }

    /// The same after more packets than it may carry: how many its hold device had no room for.
    pub fn stop_flooded(self) -> Result<u64> {
        let refused = match &self {
            Self::Perturb(applied) => applied.nothing_but_refused()?,
            Self::Off | Self::Netem(_) | Self::Edt(_) => 0,
        };
        self.end()?;
        Ok(refused)
    }

    fn end(self) -> Result<()> {
        match self {
            Self::Perturb(applied) => applied.stop(),
            Self::Off | Self::Netem(_) | Self::Edt(_) => Ok(()),
        }
    }
}

/// netem on both ends of a bed; dropping it removes it.
#[derive(Debug)]
pub struct Netem<'a>(&'a Bed);

impl Drop for Netem<'_> {
    fn drop(&mut self) {
        for host in [&self.0.left, &self.0.right] {
            // If the second could not be made, there is none to remove.
            let _ = host.run(&format!("tc qdisc del dev {INTERFACE} root"));
        }
    }
}
