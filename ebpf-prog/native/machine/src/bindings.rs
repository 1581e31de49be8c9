//! `aya_ebpf::bindings`: constants of the kernel's, and the context of a program.

/// `linux/pkt_cls.h`: the next program decides.
pub const TC_ACT_UNSPEC: i32 = -1;
/// Drop it.
pub const TC_ACT_SHOT: i32 = 2;
/// It goes to another device.
pub const TC_ACT_REDIRECT: i32 = 7;
/// `linux/bpf.h`: a redirect to a device's receiving side.
pub const BPF_F_INGRESS: u32 = 1;
/// Nobody is woken for a record.
pub const BPF_RB_NO_WAKEUP: u32 = 1;

/// `struct __sk_buff`, as far as the programs look at it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct __sk_buff {
    pub len: u32,
    pub mark: u32,
    /// EtherType, in network order.
    pub protocol: u32,
    pub vlan_present: u32,
    pub vlan_tci: u32,
    pub vlan_proto: u32,
    pub priority: u32,
    pub queue_mapping: u32,
    pub ifindex: u32,
    pub tc_index: u32,
    pub hash: u32,
    pub gso_segs: u32,
    pub gso_size: u32,
    /// 1: `tstamp` is one of CLOCK_MONOTONIC.
    pub tstamp_type: u8,
    pub tstamp: u64,
    /// The frame's first bytes lie from here
    pub data: usize,
    /// to here.
    pub data_end: usize,
    pub __bindgen_anon_2: Socket,
}

/// Whose the packet is: nobody's, for whoever sent it has let go of it.
#[derive(Clone, Copy)]
#[repr(C)]
pub union Socket {
    pub sk: *mut u8,
}

impl Default for __sk_buff {
    fn default() -> Self {
        Self {
            len: 0,
            mark: 0,
            protocol: 0,
            vlan_present: 0,
            vlan_tci: 0,
            vlan_proto: 0,
            priority: 0,
            queue_mapping: 0,
            ifindex: 0,
            tc_index: 0,
            hash: 0,
            gso_segs: 0,
            gso_size: 0,
            tstamp_type: 0,
            tstamp: 0,
            data: 0,
            data_end: 0,
            __bindgen_anon_2: Socket {
                sk: std::ptr::null_mut(),
            },
        }
    }
}
