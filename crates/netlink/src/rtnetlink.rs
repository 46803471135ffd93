//! Numbers of rtnetlink: message types, the lengths of their fixed headers, attributes, flags
//! (include/uapi/linux/{rtnetlink,if,if_link,if_addr,fib_rules}.h).
#![allow(missing_docs, reason = "the names are the kernel's")]

/// Length of `struct ifinfomsg`: family, type, index, flags, mask of flags.
pub const IFINFOMSG: usize = 16;
/// Length of `struct ifaddrmsg`: family, prefix length, flags, scope, index.
pub const IFADDRMSG: usize = 8;
/// Length of `struct rtmsg`: family, lengths of destination and source, TOS, table, protocol, scope, type, flags.
pub const RTMSG: usize = 12;
/// Length of `struct rtnexthop`.
pub const RTNEXTHOP: usize = 8;
/// Length of `struct fib_rule_hdr`: family, lengths of destination and source, TOS, table, two reserved, action, flags.
pub const FIB_RULE_HDR: usize = 12;

pub const RTM_NEWLINK: u16 = 16;
pub const RTM_DELLINK: u16 = 17;
pub const RTM_GETLINK: u16 = 18;
pub const RTM_NEWADDR: u16 = 20;
pub const RTM_DELADDR: u16 = 21;
pub const RTM_GETADDR: u16 = 22;
pub const RTM_NEWROUTE: u16 = 24;
pub const RTM_DELROUTE: u16 = 25;
pub const RTM_GETROUTE: u16 = 26;
pub const RTM_NEWRULE: u16 = 32;
pub const RTM_DELRULE: u16 = 33;
pub const RTM_GETRULE: u16 = 34;

/// A cache entry, not a route.
pub const RTM_F_CLONED: u32 = 0x200;

pub const IFLA_IFNAME: u16 = 3;
pub const IFLA_MTU: u16 = 4;
pub const IFLA_TXQLEN: u16 = 13;
pub const IFLA_LINKINFO: u16 = 18;
pub const IFLA_AF_SPEC: u16 = 26;
pub const IFLA_EXT_MASK: u16 = 29;
pub const IFLA_GSO_MAX_SEGS: u16 = 40;

pub const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;

pub const IFLA_INFO_KIND: u16 = 1;
pub const IFLA_INFO_DATA: u16 = 2;

pub const IFLA_TUN_OWNER: u16 = 1;
pub const IFLA_TUN_GROUP: u16 = 2;
pub const IFLA_TUN_PERSIST: u16 = 6;
pub const IFLA_TUN_NUM_QUEUES: u16 = 8;
pub const IFLA_TUN_NUM_DISABLED_QUEUES: u16 = 9;

pub const IFF_UP: u32 = 1;
/// Leaves out the statistics, which are most of a link's attributes.
pub const RTEXT_FILTER_SKIP_STATS: u32 = 8;

pub const IFA_ADDRESS: u16 = 1;
pub const IFA_LOCAL: u16 = 2;
pub const IFA_FLAGS: u16 = 8;

pub const IFA_F_OPTIMISTIC: u32 = 0x04;
pub const IFA_F_TENTATIVE: u32 = 0x40;

pub const RTA_DST: u16 = 1;
pub const RTA_SRC: u16 = 2;
pub const RTA_OIF: u16 = 4;
pub const RTA_GATEWAY: u16 = 5;
pub const RTA_PRIORITY: u16 = 6;
pub const RTA_PREFSRC: u16 = 7;
pub const RTA_METRICS: u16 = 8;
pub const RTA_MULTIPATH: u16 = 9;
pub const RTA_TABLE: u16 = 15;
pub const RTA_MARK: u16 = 16;
pub const RTA_VIA: u16 = 18;

pub const RTAX_MTU: u16 = 2;

pub const RTN_UNSPEC: u8 = 0;
pub const RTN_UNICAST: u8 = 1;
pub const RTN_LOCAL: u8 = 2;
pub const RTN_BLACKHOLE: u8 = 6;
pub const RTN_UNREACHABLE: u8 = 7;
pub const RTN_THROW: u8 = 9;

pub const RT_SCOPE_UNIVERSE: u8 = 0;
pub const RT_SCOPE_HOST: u8 = 254;
pub const RT_TABLE_LOCAL: u32 = 255;

pub const RTNH_F_ONLINK: u32 = 4;

pub const FRA_DST: u16 = 1;
pub const FRA_PRIORITY: u16 = 6;
pub const FRA_FWMARK: u16 = 10;
pub const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
pub const FRA_TABLE: u16 = 15;
pub const FRA_PROTOCOL: u16 = 21;

pub const FR_ACT_TO_TBL: u8 = 1;

pub const FIB_RULE_INVERT: u32 = 2;
