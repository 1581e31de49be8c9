//! Options that `load`, `serve` and `curve` share.

use std::{net::SocketAddr, path::Path, time::Duration};

use clap::{ArgGroup, Args};
use perturb_models::queueing::NfsServer;
use perturb_quantity::{ByteSize, Micros, OperationsPerSecond, Share, Size};
use perturb_workloads::nfs::{
    client::{Export, Options, Ports, Transport},
    load::Plan,
    mix::{self, Mix},
    record::Arrivals,
    server::{Cache, Config, Disks, Distribution, Service, ServiceModel},
};

use crate::{
    cli::{
        Contradiction,
        quantity::fraction,
        time::{self, within},
        words::{Words, one_of},
    },
    predict::read,
};

/// What load, apart from its rate.
#[derive(Args, Clone, Debug)]
pub(super) struct LoadOptions {
    /// sfs2-v3, sfs2-v2, sfs2008, or a YAML file: `name: mine` and `percent: { getattr: 90, read: 10 }`.
    #[arg(long, default_value = "sfs2-v3", value_name = "NAME|FILE")]
    mix: String,
    /// How requests arrive: a fixed number of processes that think between calls, or Poisson.
    #[arg(long, value_parser = one_of(ARRIVALS), default_value = "closed")]
    arrivals: Arrivals,
    /// Time under load before the run.
    #[arg(long, default_value = "10s", value_parser = within(time::SPAN), value_name = "TIME")]
    warmup: Duration,
    /// Time of the run.
    #[arg(long, default_value = "60s", value_parser = within(time::SPAN), value_name = "TIME")]
    duration: Duration,
    /// Processes of closed arrivals [default: one for 20 op/s, 4 to 256].
    #[arg(long, value_name = "N")]
    processes: Option<usize>,
    /// Connections [default: one for each process, at most 32].
    #[arg(long, value_name = "N")]
    connections: Option<usize>,
    /// Threads [default: one for each processor, at most 4].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// When a call is given up; when nothing is answered for so long, the run ends.
    #[arg(long, default_value = "20s", value_parser = within(time::WORK), value_name = "TIME")]
    timeout: Duration,
    /// UDP: when a call is sent again, then after twice that, and so on [default: 1.1s].
    #[arg(long, value_parser = within(time::WORK), value_name = "TIME")]
    retransmit_after: Option<Duration>,
    /// Call from ports below 1024, as servers that export `secure` ask (needs root).
    #[arg(long)]
    reserved_ports: bool,
    /// Directory of the export to work in; must be empty or missing.
    #[arg(long, default_value = "perturb-nfs-load", value_name = "NAME")]
    directory: String,
    /// Work in the directory although an earlier run left its files there, which are removed.
    #[arg(long)]
    reuse: bool,
    /// Seed of all that is drawn at random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Where NFS is served.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct PortOptions {
    /// Port of NFS; without it the port mapper is asked.
    #[arg(long, value_name = "PORT")]
    nfs_port: Option<u16>,
    /// Port of mount; without it the NFS port is tried, then the port mapper asked.
    #[arg(long, value_name = "PORT")]
    mount_port: Option<u16>,
}

/// What requests cost the embedded server.
#[derive(Args, Clone, Debug)]
#[command(
    group = ArgGroup::new("processor").args(["cpu_service", "server_model"]).multiple(true),
    group = ArgGroup::new("a_cache").args(["cache", "server_model"]).multiple(true),
    group = ArgGroup::new("disk").args(["disk_service", "server_model"]).multiple(true),
)]
pub(super) struct ServerOptions {
    /// Processor, disks, cache and delay of a server of Martin 1999, section 5.3; what is given beside it counts instead.
    #[arg(long, value_parser = one_of(SERVER_MODELS), value_name = "NAME")]
    server_model: Option<NfsServer>,
    /// Mean processor time of a request; one processor serves all in turn.
    #[arg(long, value_parser = within(time::WORK), value_name = "TIME")]
    pub(super) cpu_service: Option<Duration>,
    /// How it is spread.
    #[arg(long, value_parser = one_of(DISTRIBUTIONS), default_value = "exponential", requires = "processor")]
    cpu_distribution: Distribution,
    /// Burn the processor time instead of waiting for it: it competes with a network's overhead, as a real
    /// server's does. In a curve each private host then has processors of its own.
    #[arg(long, requires = "processor")]
    pub(super) burn: bool,
    /// Mean time of a disk for a request that the cache cannot serve.
    #[arg(long, value_parser = within(time::WORK), value_name = "TIME")]
    disk_service: Option<Duration>,
    /// How it is spread.
    #[arg(long, value_parser = one_of(DISTRIBUTIONS), default_value = "exponential", requires = "disk")]
    disk_distribution: Distribution,
    /// Disks, with one queue before them [default: 1].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000), value_name = "N", requires = "disk")]
    disks: Option<u32>,
    /// Cache before the disks: the latest 8 KiB blocks, so many bytes of them.
    #[arg(long, value_name = "SIZE", conflicts_with = "hit_ratio", requires = "disk")]
    cache: Option<Size>,
    /// Bytes that are worked on for each op/s, 1 MB in SFS: then the cache holds its share of them, whatever the size of
    /// the data set, and a request is a hit with that probability.
    #[arg(long, value_name = "SIZE", conflicts_with = "hit_ratio", requires = "a_cache")]
    working_set: Option<Size>,
    /// Cache before the disks: a request is a hit with this probability [default: 0].
    #[arg(long, value_parser = fraction, value_name = "FRACTION", requires = "disk")]
    hit_ratio: Option<Share>,
    /// Time that every request takes besides, without a queue [default: 0s].
    #[arg(long, value_parser = within(time::WORK_OR_NONE), value_name = "TIME")]
    fixed_delay: Option<Duration>,
    /// Memory for files.
    #[arg(long, default_value = "4GiB", value_name = "SIZE")]
    capacity: Size,
    /// Path that may be mounted.
    #[arg(long, default_value = "/export", value_name = "PATH")]
    pub(super) export: String,
    /// Refuse every change.
    #[arg(long)]
    read_only: bool,
    /// Seed of the service times.
    #[arg(long, default_value_t = 1, value_name = "SEED")]
    service_seed: u64,
}

const ARRIVALS: Words<Arrivals> = &[
    (
        "closed",
        Arrivals::Closed,
        "Processes wait for their replies and think (SFS)",
    ),
    (
        "open",
        Arrivals::Open,
        "A Poisson process, whatever the server does",
    ),
];

pub(super) const TRANSPORTS: Words<Transport> =
    &[("tcp", Transport::Tcp, "TCP"), ("udp", Transport::Udp, "UDP")];

const SERVER_MODELS: Words<NfsServer> = &[
    (
        "martin-scsi",
        NfsServer::MARTIN_SCSI,
        "900 us of processor, 24 disks of 12 ms, 128 MB of cache, 3.4 ms of delay",
    ),
    (
        "martin-raid",
        NfsServer::MARTIN_RAID,
        "650 us, 28 disks, 448 MB and 64 MB of NVRAM",
    ),
];

const DISTRIBUTIONS: Words<Distribution> = &[
    ("fixed", Distribution::Fixed, "Always the mean"),
    ("exponential", Distribution::Exponential, "Exponential"),
];

impl LoadOptions {
    /// Whether the options fit each other.
    fn check(&self, transports: &[Transport]) -> Result<(), Contradiction> {
        if self.retransmit_after.is_some() && !transports.contains(&Transport::Udp) {
            return Err(Contradiction(
                "--retransmit-after is for --transport udp; over TCP the kernel decides when to send again",
            ));
        }
        if self.processes.is_some() && self.arrivals == Arrivals::Open {
            return Err(Contradiction(
                "--processes is for --arrivals closed; open arrivals come at the rate, whoever waits",
            ));
        }
        Ok(())
    }

    /// The plan of a load of this rate and scale, over the first of these transports.
    pub(super) fn plan(
        &self,
        export: Export,
        ports: Ports,
        transports: &[Transport],
        rate: OperationsPerSecond,
        scale: f64,
    ) -> anyhow::Result<Plan> {
        self.check(transports)?;
        let usual = Options::default();
        Ok(Plan {
            export,
            ports,
            options: Options {
                transport: transports.first().copied().unwrap_or(usual.transport),
                timeout: self.timeout,
                retransmit_after: self.retransmit_after.unwrap_or(usual.retransmit_after),
                reserved_ports: self.reserved_ports,
                ..usual
            },
            mix: read_mix(&self.mix)?,
            rate: rate.0,
            arrivals: self.arrivals,
            warmup: self.warmup,
            duration: self.duration,
            scale,
            processes: self.processes,
            connections: self.connections,
            threads: self.threads,
            directory: self.directory.clone(),
            reuse: self.reuse,
            seed: self.seed,
            histogram: false,
        })
    }
}

impl PortOptions {
    pub(super) fn ports(self) -> Ports {
        Ports {
            nfs: self.nfs_port,
            mount: self.mount_port,
        }
    }
}

impl ServerOptions {
    pub(super) fn config(&self, listen: SocketAddr) -> Config {
        let service = |mean, distribution| Service { mean, distribution };
        let model = self.server_model;
        let micros = |Micros(micros)| Duration::from_secs_f64(micros / 1e6);
        let cpu_service = self.cpu_service.or(model.map(|model| micros(model.cpu_service)));
        let disk_service = self
            .disk_service
            .or(model.map(|model| micros(model.disk_service)));
        let disks = self.disks.or(model.map(|model| model.disks)).unwrap_or(1);
        let fixed_delay = self.fixed_delay.or(model.map(|model| micros(model.fixed_delay)));
        let bytes = |size: ByteSize| size.0 as u64;
        // A cache of its own is one of blocks, unless it is told what to share.
        let modeled = model.filter(|_| self.cache.is_none() || self.working_set.is_some());
        let given = |own: Option<Size>, of: fn(&NfsServer) -> Option<ByteSize>| {
            let own = own.map(Size::bytes);
            own.or_else(|| modeled.as_ref().and_then(of).map(bytes))
        };
        let cache = match (
            self.hit_ratio,
            given(self.cache, |model| model.cache),
            given(self.working_set, |model| model.touched_per_rate),
        ) {
            (Some(ratio), ..) => Cache::HitRatio(ratio.0),
            (None, Some(cache), Some(working_set)) => Cache::Share { cache, working_set },
            (None, Some(cache), None) => Cache::Bytes(cache),
            (None, None, _) => Cache::HitRatio(0.0),
        };
        Config {
            listen,
            export: self.export.clone(),
            capacity: self.capacity.bytes(),
            read_only: self.read_only,
            service: ServiceModel {
                fixed_delay: fixed_delay.unwrap_or_default(),
                cpu: cpu_service.map(|mean| service(mean, self.cpu_distribution)),
                burn: self.burn,
                disks: disk_service.map(|mean| Disks {
                    count: disks as usize,
                    service: service(mean, self.disk_distribution),
                    cache,
                }),
                seed: self.service_seed,
            },
        }
    }
}

fn read_mix(text: &str) -> anyhow::Result<Mix> {
    if mix::NAMES.contains(&text) || !(text.contains(['.', '/']) || Path::new(text).exists()) {
        return Ok(Mix::named(text)?);
    }
    Ok(read(Path::new(text))?)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        server: ServerOptions,
    }

    fn service(words: &str) -> ServiceModel {
        let line = Line::try_parse_from(std::iter::once("x").chain(words.split_whitespace())).unwrap();
        line.server.config(([127, 0, 0, 1], 0).into()).service
    }

    #[test]
    fn a_model_of_a_server_is_a_default() {
        let scsi = service("--server-model martin-scsi");
        assert_eq!(scsi.cpu.unwrap().mean, Duration::from_micros(900));
        assert_eq!(scsi.fixed_delay, Duration::from_micros(3400));
        let share = Cache::Share {
            cache: 128_000_000,
            working_set: 1_000_000,
        };
        assert_eq!(
            (scsi.disks.unwrap().count, scsi.disks.unwrap().cache),
            (24, share)
        );
        let own = service("--server-model martin-raid --cpu-service 1ms --cache 1MB --disks 2 --burn");
        assert_eq!(own.cpu.unwrap().mean, Duration::from_millis(1));
        let disks = own.disks.unwrap();
        assert_eq!((disks.count, disks.cache), (2, Cache::Bytes(1_000_000)));
        assert_eq!(disks.service.mean, Duration::from_millis(12));
        assert!(own.burn);
        let disks = service("--disk-service 5ms --cache 1MB --working-set 2MB")
            .disks
            .unwrap();
        let share = Cache::Share {
            cache: 1_000_000,
            working_set: 2_000_000,
        };
        assert_eq!((disks.count, disks.cache), (1, share));
        assert!(Line::try_parse_from(["x", "--burn"]).is_err());
        assert!(Line::try_parse_from(["x", "--disk-service", "5ms", "--working-set", "1MB"]).is_err());
    }

    #[test]
    fn a_mix_is_a_name_or_a_file() {
        assert_eq!(read_mix("sfs2-v2").unwrap().name(), "sfs2-v2");
        assert!(
            read_mix("sfs3")
                .unwrap_err()
                .to_string()
                .contains("no mix is called")
        );
        assert!(
            read_mix("./missing.yaml")
                .unwrap_err()
                .to_string()
                .contains("missing.yaml")
        );
    }
}
