//! What about an interface does not go together with the way through a hold device, found before it is emulated.
//!
//! That way takes from a packet its route or tunnel (`skb_dst`), its socket, its extensions (`skb_ext`: IPsec's path)
//! and its stamp (`skb_scrub_packet`, `skb_clear_tstamp`, `bpf_clone_redirect`). Where traffic would be lost or leave
//! unprotected without them the interface is refused ([`Obstacle`]); where some of it passes perturb by, or loses
//! something that few need, that is said ([`Caveat`]). docs/hop.md has the whole table.

mod ipsec;

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    attach::{AttachError, Others, Side},
    ethtool::{self, TimeStamps},
    netlink::{Link, Netlink, NetlinkError, XdpMode},
};

/// Why an interface cannot be emulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// The route of each packet names its tunnel (`metadata_dst`).
    #[error(
        "it is a tunnel whose far end each packet brings along ({kind} external, as Open vSwitch and Cilium make \
         them), which a held packet loses; emulate the interface that the tunnel runs over instead"
    )]
    MetadataTunnel {
        /// The driver's kind.
        kind: String,
    },
    /// Its hardware encrypts for a MACsec device, which the route of each packet names.
    #[error(
        "its hardware encrypts for the MACsec device {device}, and held packets would leave in the clear; emulate \
         {device} instead, or switch that off (`ip link set {device} type macsec offload off`)"
    )]
    Macsec {
        /// The MACsec device above it.
        device: String,
    },
    /// Its hardware encrypts or decrypts for IPsec, by each packet's `secpath`.
    #[error(
        "its hardware encrypts or decrypts for IPsec (`ip xfrm state` shows \"crypto offload\"), and held packets \
         lose what tells it which; set the security associations up without offload"
    )]
    Ipsec,
    /// Its hardware encrypts or decrypts for TLS, by each packet's socket.
    #[error(
        "its hardware encrypts or decrypts for TLS, and the kernel drops such packets once they have lost their \
         socket; switch that off (`ethtool -K {interface} {feature} off`) and restart the programs that use it"
    )]
    Tls {
        interface: String,
        /// Which offload is on.
        feature: &'static str,
    },
    /// A qdisc that asks the socket for its launch time.
    #[error(
        "its qdisc etf drops every packet that has no socket with a launch time, and held packets have none; \
         remove etf, or emulate the interface at the other end"
    )]
    LaunchTime,
    /// A VRF device: its packets cross the hooks of its members.
    #[error(
        "it is a VRF, whose packets cross the members only; emulate the interfaces that belong to it instead"
    )]
    Vrf,
}

/// What an emulation of an interface does not do as it would seem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Caveat {
    /// An XDP program.
    #[error(
        "an XDP program ({mode}) sees packets before perturb: what it drops, redirects, or hands to AF_XDP sockets is \
         not emulated, nor is what such sockets send"
    )]
    Xdp {
        /// Where it runs.
        mode: XdpMode,
    },
    /// An RDMA device.
    #[error("it is an RDMA device, too ({device}), whose traffic passes perturb by")]
    Rdma { device: String },
    /// A port of a hardware switch.
    #[error("it is a port of a hardware switch: what the switch forwards by itself passes perturb by")]
    SwitchPort,
    /// tc offload is on, and there are filters.
    #[error(
        "its hardware may carry out tc filters (hw-tc-offload), and what it deals with passes perturb by; \
         `tc -s filter show dev {interface} ingress` tells which filters are in_hw"
    )]
    OffloadedFilters { interface: String },
    /// Somebody asked its hardware for time stamps of what it sends.
    #[error(
        "its hardware stamps what it sends (ptp4l?), and emulated packets get no such stamps; give PTP a class with \
         `bypass: true` (match `ethertype: 0x88f7`, and `protocol: udp, port: 319-320`)"
    )]
    TransmitStamps,
    /// Programs or filters of others.
    #[error("{side} has {}, too: perturb comes first, so that they see a packet when it leaves, and not if it is dropped", names.join(", "))]
    Others {
        side: Side,
        /// What they are.
        names: Vec<String>,
    },
    /// Filters that come before perturb.
    #[error(
        "{side} has {} before perturb: what it answers for (`action ok`, drop, redirect) is not emulated, and all \
         else passes it twice; give it a higher `pref`, so that there is room before it", names.join(", ")
    )]
    Ahead {
        side: Side,
        /// What they are.
        names: Vec<String>,
    },
    /// There is IPsec in this namespace.
    #[error(
        "this host uses IPsec: what a tunnel carries crosses the interface twice, encrypted and decrypted, and is \
         refused by its policy if perturb holds it decrypted; give the addresses inside the tunnel a class with \
         `bypass: true` before all others"
    )]
    Ipsec,
}

/// What was found at an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Why it cannot be emulated.
    pub obstacles: Vec<Obstacle>,
    /// What the user should know.
    pub caveats: Vec<Caveat>,
}

/// Why an interface could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    /// Interfaces, qdiscs or filters.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// Programs.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// Security associations.
    #[error("listing the IPsec security associations: {0}")]
    Ipsec(std::io::Error),
}

/// Features (`ethtool -k`) that need the socket, by name.
const TLS_FEATURES: [&str; 3] = ["tls-hw-tx-offload", "tls-hw-rx-offload", "tls-hw-record"];

impl Survey {
    /// Looks at an interface of the current namespace, one of `links`.
    pub fn of(netlink: &mut Netlink, link: &Link, links: &[Link]) -> Result<Self, SurveyError> {
        let mut survey = Self::default();
        survey.look_at_links(link, links);
        survey.look_at_features(link);
        survey.look_at_traffic_control(netlink, link)?;
        survey.look_at_ipsec(link)?;
        survey.look_at_device(&device(link));
        Ok(survey)
    }

    fn look_at_links(&mut self, link: &Link, links: &[Link]) {
        let kind = || link.kind.clone().unwrap_or_default();
        if link.external {
            self.obstacles.push(Obstacle::MetadataTunnel { kind: kind() });
        }
        if kind() == "vrf" {
            self.obstacles.push(Obstacle::Vrf);
        }
        let above = links.iter().find(|other| {
            // The lower device of a link that was moved here may be in another namespace, under the same number.
            other.lower == Some(link.index) && other.offloads_macsec
        });
        if let Some(device) = above {
            self.obstacles.push(Obstacle::Macsec {
                device: device.name.clone(),
            });
        }
        if let Some(mode) = link.xdp {
            self.caveats.push(Caveat::Xdp { mode });
        }
        if link.switch_port {
            self.caveats.push(Caveat::SwitchPort);
        }
    }

    fn look_at_features(&mut self, link: &Link) {
        let is_on = |feature| ethtool::feature(&link.name, feature).unwrap_or(false);
        if let Some(feature) = TLS_FEATURES.into_iter().find(|feature| is_on(feature)) {
            self.obstacles.push(Obstacle::Tls {
                interface: link.name.clone(),
                feature,
            });
        }
        // A device without a clock answers with an error.
        if ethtool::time_stamps(&link.name).is_ok_and(|stamps| stamps == TimeStamps::On) {
            self.caveats.push(Caveat::TransmitStamps);
        }
    }

    fn look_at_traffic_control(&mut self, netlink: &mut Netlink, link: &Link) -> Result<(), SurveyError> {
        for side in [Side::Egress, Side::Ingress] {
            let Others { after, before } = Others::at(netlink, link, side)?;
            if !after.is_empty() {
                self.caveats.push(Caveat::Others { side, names: after });
            }
            if !before.is_empty() {
                self.caveats.push(Caveat::Ahead { side, names: before });
            }
        }
        if netlink.qdisc_kinds(link.index)?.iter().any(|kind| kind == "etf") {
            self.obstacles.push(Obstacle::LaunchTime);
        }
        if ethtool::feature(&link.name, "hw-tc-offload").unwrap_or(false)
            && netlink.clsact_filters(link.index)? != 0
        {
            self.caveats.push(Caveat::OffloadedFilters {
                interface: link.name.clone(),
            });
        }
        Ok(())
    }

    fn look_at_ipsec(&mut self, link: &Link) -> Result<(), SurveyError> {
        let associations = ipsec::associations().map_err(SurveyError::Ipsec)?;
        if associations.contains(&Some(link.index)) {
            self.obstacles.push(Obstacle::Ipsec);
        } else if !associations.is_empty() && !link.loopback {
            self.caveats.push(Caveat::Ipsec);
        }
        Ok(())
    }

    /// `device` is the device's directory in sysfs.
    fn look_at_device(&mut self, device: &Path) {
        let names = fs::read_dir(device.join("infiniband")).into_iter().flatten();
        if let Some(Ok(entry)) = names.into_iter().next() {
            self.caveats.push(Caveat::Rdma {
                device: entry.file_name().to_string_lossy().into_owned(),
            });
        }
    }
}

/// Of an interface, if it is hardware. sysfs shows the interfaces of the namespace it was mounted in: another's is not
/// found.
fn device(link: &Link) -> PathBuf {
    Path::new("/sys/class/net").join(&link.name).join("device")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Caveat, Survey};

    /// No kernel of the tests has such a device: a directory as sysfs shows it.
    #[test]
    fn rdma_is_seen() -> std::io::Result<()> {
        let place = std::env::temp_dir().join(format!("perturb-survey-{}", std::process::id()));
        fs::create_dir_all(place.join("infiniband/mlx5_0"))?;
        let (mut with, mut without) = (Survey::default(), Survey::default());
        with.look_at_device(&place);
        without.look_at_device(&place.join("infiniband"));
        fs::remove_dir_all(&place)?;
        let device = "mlx5_0".into();
        assert_eq!(with.caveats, [Caveat::Rdma { device }]);
        assert_eq!(without, Survey::default());
        Ok(())
    }
}
