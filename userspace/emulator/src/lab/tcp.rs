//! The profile's `tcp:` section, in private hosts only: network namespaces have these settings of
//! their own.

use std::{fs, io, path::PathBuf};

use perturb_dataplane::{
    ethtool::{self, Offload},
    netlink::{Netlink, NetlinkError},
};
use perturb_profile::{Duration, Tcp, Window};

use super::{Host, INTERFACE, PREFIXES, addresses};

/// Why a setting could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TcpError {
    /// A sysctl.
    #[error("tcp: {key}: setting {path} to `{value}`: {source}{}", advice(.key, .source))]
    Sysctl {
        /// The profile's key.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What was written.
        value: String,
        /// Why it failed.
        source: io::Error,
    },
    /// An offload.
    #[error("tcp: offloads: {0}")]
    Offload(io::Error),
    /// A route.
    #[error("tcp: rto_min, delayed_acks: {0}")]
    Route(#[from] NetlinkError),
    /// The namespace.
    #[error("entering {host}: {source}")]
    Namespace {
        /// Which host.
        host: String,
        /// Why.
        source: io::Error,
    },
}

fn advice(key: &str, source: &io::Error) -> &'static str {
    match key {
        "rto_min" if source.kind() == io::ErrorKind::NotFound => {
            "; this kernel has whole ms only, others came with Linux 6.11: write whole ms"
        }
        "rto_max" if source.kind() == io::ErrorKind::NotFound => {
            "; this kernel lacks it, it came with Linux 6.15: leave the key out"
        }
        _ if source.kind() == io::ErrorKind::NotFound => "; this kernel lacks it: leave the key out",
        _ if source.kind() == io::ErrorKind::ReadOnlyFilesystem => {
            "; a container may not: start it with `--security-opt unmask=ALL` (Podman) or `systempaths=unconfined` (Docker)"
        }
        "congestion_control" => {
            "; a new namespace allows only what net.ipv4.tcp_allowed_congestion_control of the machine lists"
        }
        _ => "",
    }
}

/// Makes the settings in a host.
pub fn configure(host: &Host, tcp: &Tcp) -> Result<(), TcpError> {
    host.namespace
        .enter(|| {
            sysctls(tcp)?;
            if tcp.offloads == Some(false) {
                offloads_off().map_err(TcpError::Offload)?;
            }
            let millis = tcp.rto_min.and_then(whole_millis);
            // Linux delays acknowledgments unless a route says otherwise.
            let quickack = tcp.delayed_acks.map(|delayed| !delayed);
            if millis.is_some() || quickack.is_some() {
                let own = (addresses(host.number).0, PREFIXES.0);
                Netlink::open()?.set_tcp_metrics(host.index(), own, millis, quickack)?;
            }
            Ok(())
        })
        .map_err(|source| TcpError::Namespace {
            host: host.name(),
            source,
        })?
}

/// What a route can say; nothing if it is no whole number of ms.
fn whole_millis(time: Duration) -> Option<u32> {
    let whole = time.nanos().is_multiple_of(1_000_000);
    whole.then(|| u32::try_from(time.nanos() / 1_000_000).unwrap_or(u32::MAX))
}

fn sysctls(tcp: &Tcp) -> Result<(), TcpError> {
    let switch = |value: bool| u8::from(value).to_string();
    let window = |window: &Window| {
        format!(
            "{} {} {}",
            window.min.bytes(),
            window.initial.bytes(),
            window.max.bytes()
        )
    };
    let settings = [
        (
            "congestion_control",
            "tcp_congestion_control",
            tcp.congestion_control.as_ref().map(ToString::to_string),
        ),
        ("sack", "tcp_sack", tcp.sack.map(switch)),
        (
            "early_retrans",
            "tcp_early_retrans",
            tcp.early_retrans.map(|value| value.to_string()),
        ),
        (
            "recovery",
            "tcp_recovery",
            tcp.recovery.map(|value| value.to_string()),
        ),
        (
            "rto_min",
            "tcp_rto_min_us",
            tcp.rto_min
                .filter(|&least| whole_millis(least).is_none())
                .map(|least| least.nanos().div_ceil(1_000).to_string()),
        ),
        (
            "rto_max",
            "tcp_rto_max_ms",
            tcp.rto_max
                .map(|most| most.nanos().div_ceil(1_000_000).to_string()),
        ),
        (
            "thin_linear_timeouts",
            "tcp_thin_linear_timeouts",
            tcp.thin_linear_timeouts.map(switch),
        ),
        (
            "slow_start_after_idle",
            "tcp_slow_start_after_idle",
            tcp.slow_start_after_idle.map(switch),
        ),
        ("ecn", "tcp_ecn", tcp.ecn.map(switch)),
        (
            "receive_buffer",
            "tcp_rmem",
            tcp.receive_buffer.as_ref().map(window),
        ),
        ("send_buffer", "tcp_wmem", tcp.send_buffer.as_ref().map(window)),
        (
            "no_metrics_save",
            "tcp_no_metrics_save",
            tcp.no_metrics_save.map(switch),
        ),
    ];
    for (key, name, value) in settings {
        let Some(value) = value else { continue };
        let path = PathBuf::from("/proc/sys/net/ipv4").join(name);
        fs::write(&path, &value).map_err(|source| TcpError::Sysctl {
            key,
            path,
            value,
            source,
        })?;
    }
    Ok(())
}

fn offloads_off() -> io::Result<()> {
    for offload in [
        Offload::TcpSegmentation,
        Offload::Segmentation,
        Offload::Receive,
        Offload::TransmitChecksum,
    ] {
        ethtool::set(INTERFACE, offload, false)?;
    }
    Ok(())
}
