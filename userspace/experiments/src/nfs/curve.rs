//! A response-time curve for each network.

use std::{
    collections::BTreeSet,
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use perturb_emulator::{conduct::Pacing, lab, prepared::Prepared};
use perturb_models::queueing::NfsServer;
use perturb_present::LiveLine;
use perturb_profile::{Knob, Name, Profile, Size};
use perturb_workloads::nfs::{
    Stop,
    client::{Options, Transport},
    curve::CurveFile,
    load::Plan,
    server::Config,
};

use super::{
    InvalidInput, emulated,
    measure::{self, Added, Levels, Series, Where},
    overlay,
    reference::Reference,
    results::{Measured, Report},
};

/// A network to measure on.
pub struct Network {
    name: String,
    added: Added,
    /// What is emulated, and as it was written.
    emulated: Option<(Prepared, String)>,
}

pub struct Request {
    /// A curve for each.
    pub networks: Vec<Network>,
    /// The embedded server; without one, the plan's is measured.
    pub embedded: Option<Config>,
    /// The load; each level has a rate of its own.
    pub plan: Plan,
    /// What carries its calls: each network is measured with each.
    pub transports: Vec<Transport>,
    /// Which rates.
    pub levels: Levels,
    /// The queueing model to overlay.
    pub model: Option<NfsServer>,
    /// A published table to draw beside it.
    pub reference: Option<Reference>,
    /// Who keeps the time.
    pub pacing: Pacing,
    /// Compute a packet's whole path when it is sent.
    pub coarse: bool,
    /// Directory of the results.
    pub out: PathBuf,
    /// Whether to go on with what is there.
    pub resume: bool,
}

/// Curves that were measured.
pub struct Curves<'a> {
    measured: Vec<Measured>,
    reference: Option<&'a Reference>,
    /// 0, or the worst exit code of those who measured.
    code: u8,
    failed: anyhow::Result<()>,
}

impl Request {
    /// Whether the parts fit each other.
    pub fn check(&self) -> Result<(), InvalidInput> {
        let turned = self.networks.first().and_then(|network| network.added);
        if let (Some(_), Some((knob, _))) = (&self.model, turned)
            && !matches!(knob, Knob::Latency | Knob::Overhead)
        {
            return Err(InvalidInput::NotModeled(knob));
        }
        let mut names = BTreeSet::new();
        match self.networks.iter().find(|network| !names.insert(&network.name)) {
            Some(twice) => Err(InvalidInput::SameName(twice.name.clone())),
            None => Ok(()),
        }
    }

    /// Whether anything is emulated.
    #[must_use]
    pub fn emulates(&self) -> bool {
        self.networks.iter().any(|network| network.emulated.is_some())
    }

    fn series(&self, network: &Network, transport: Transport) -> Series {
        let server = match (&self.embedded, &network.emulated) {
            (None, _) => Where::Elsewhere,
            (Some(config), None) => Where::Here(config.clone()),
            (Some(config), Some(_)) => Where::OnHost(Config {
                listen: measure::private_address(),
                ..config.clone()
            }),
        };
        Series {
            name: match self.transports.as_slice() {
                [_] => network.name.clone(),
                _ => format!("{}-{}", network.name, transport.to_string().to_lowercase()),
            },
            network: network.added,
            profile: network.emulated.as_ref().map(|(_, text)| text.clone()),
            plan: Plan {
                options: Options {
                    transport,
                    ..self.plan.options.clone()
                },
                ..self.plan.clone()
            },
            levels: self.levels.clone(),
            server,
            out: self.out.clone(),
            resume: self.resume,
            processors: Vec::new(),
        }
    }
}

/// Measures a curve for each network, until one fails or the user stops it. The report is written anew after each curve,
/// so that an interrupted measurement has one, too.
pub fn measure<'a>(request: &'a Request, stop: &Stop, line: &LiveLine) -> anyhow::Result<Curves<'a>> {
    if let Some(reference) = &request.reference {
        let svg = reference.chart().to_svg().context("drawing the reference")?;
        fs::write(request.out.join("reference.svg"), svg).context("writing reference.svg")?;
    }
    let mut curves = Curves {
        measured: Vec::new(),
        reference: request.reference.as_ref(),
        code: 0,
        failed: Ok(()),
    };
    let networks = request.networks.iter();
    let all = networks.flat_map(|network| {
        request
            .transports
            .iter()
            .map(move |&transport| (network, transport))
    });
    for (network, transport) in all {
        let series = request.series(network, transport);
        // What was measured is told all the same.
        match network.measure(&series, request, stop, line) {
            Ok(code) => curves.code = curves.code.max(code),
            Err(error) => curves.failed = Err(error),
        }
        if curves.failed.is_err() && !series.file().exists() {
            break;
        }
        let file = CurveFile::open(&series.file(), true)?;
        if !file.levels().is_empty() {
            curves.measured.push(Measured::new(
                series.name.clone(),
                network.added,
                file.levels().to_vec(),
                request.model.as_ref(),
                series.faults()?,
            ));
        }
        curves.report().write(&request.out, request.model.as_ref())?;
        if stop.is_set() || curves.code != 0 || curves.failed.is_err() {
            break;
        }
    }
    Ok(curves)
}

/// The model of the embedded server; `None` without a processor time, which the model needs.
#[must_use]
pub fn embedded_model(config: &Config, scale: f64) -> Option<NfsServer> {
    overlay::of_embedded(config, scale)
}

impl Curves<'_> {
    /// What they say.
    #[must_use]
    pub fn report(&self) -> Report<'_> {
        Report::new(&self.measured, self.reference)
    }

    /// What went wrong with them, if anything did: an error, or another exit code than 0.
    pub fn end(self) -> anyhow::Result<u8> {
        let is_faulty = self.measured.iter().any(Measured::is_faulty);
        self.failed.map(|()| self.code.max(is_faulty.into()))
    }
}

impl Network {
    /// That of this machine, without emulation.
    #[must_use]
    pub fn none() -> Self {
        Self {
            name: "curve".into(),
            added: None,
            emulated: None,
        }
    }

    /// That of a profile.
    pub fn of(path: &Path) -> anyhow::Result<Self> {
        let unreadable = |reason| InvalidInput::Unreadable {
            path: path.to_owned(),
            reason,
        };
        let text = fs::read_to_string(path).map_err(unreadable)?;
        let name = path.file_stem().unwrap_or(path.as_os_str());
        Ok(Self {
            name: name.to_string_lossy().into_owned(),
            added: None,
            emulated: Some((Prepared::load_for(path, &hosts())?, text)),
        })
    }

    /// One network for each level of a knob, `KNOB=LEVEL,LEVEL,…`, with packets of at most `mtu` bytes.
    pub fn vary(text: &str, mtu: Option<Size>) -> Result<Vec<Self>, InvalidInput> {
        let invalid = |reason| InvalidInput::Vary {
            text: text.to_owned(),
            reason,
        };
        let (knob, levels) = text
            .split_once('=')
            .ok_or_else(|| invalid("there is no `=`".into()))?;
        levels
            .split(',')
            .map(|level| Self::at(knob.trim(), level.trim(), mtu).map_err(invalid))
            .collect()
    }

    fn at(
        knob: &str,
        level: &str,
        mtu: Option<Size>,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let knob: Knob = knob.parse()?;
        let level = if level == "0" && knob != Knob::Bandwidth {
            "0us"
        } else {
            level
        };
        let value = knob.parse(level)?;
        let name = format!("{knob}-{}", level.replace('/', ""));
        let plain = Profile {
            name: Name::new(&name),
            seed: 1,
            mtu,
            ..Profile::default()
        };
        let profile = plain.with(knob, value)?;
        let text = profile.to_string();
        Ok(Self {
            name,
            added: Some((knob, value)),
            emulated: Some((Prepared::of(profile, &hosts())?, text)),
        })
    }

    /// Measures a series on it; 0, or the exit code of whoever measured.
    fn measure(
        &self,
        series: &Series,
        request: &Request,
        stop: &Stop,
        line: &LiveLine,
    ) -> anyhow::Result<u8> {
        let Some((prepared, text)) = &self.emulated else {
            return measure::measure(series, None, stop, line).map(|is_whole| u8::from(!is_whole));
        };
        if self.added.is_some() {
            let path = request.out.join(format!("{}.yaml", self.name));
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        }
        let prepared = prepared.clone().coarse_if(request.coarse);
        emulated::measure_under(series, prepared, request.pacing, line.is_silent())
    }
}

fn hosts() -> Vec<Vec<IpAddr>> {
    lab::all_addresses(emulated::HOSTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_become_profiles() {
        let networks = Network::vary("latency=0,150us,4ms", None).unwrap();
        let names: Vec<&str> = networks.iter().map(|network| network.name.as_str()).collect();
        assert_eq!(names, ["latency-0us", "latency-150us", "latency-4ms"]);
        assert_eq!(networks[2].added, Some((Knob::Latency, 4000.0)));
        for text in [
            "latency=0,150us",
            "overhead=10us,80us",
            "gap=5us",
            "bandwidth=10Mbit/s",
        ] {
            for network in Network::vary(text, Some(Size::from_bytes(3584))).unwrap() {
                let (prepared, written) = network.emulated.unwrap();
                assert_eq!(perturb_profile::parse(&written), Ok(prepared.profile), "{text}");
            }
        }
        for (wrong, reason) in [
            ("latency", "there is no `=`"),
            ("speed=1us", "`speed` is not a knob"),
            ("latency=5", "unit"),
            ("latency=", ""),
            ("latency=200s", "out of range"),
            ("bandwidth=0", ""),
        ] {
            let refused = Network::vary(wrong, None).err().unwrap().to_string();
            assert!(refused.contains(reason), "{wrong}: {refused}");
        }
    }
}
