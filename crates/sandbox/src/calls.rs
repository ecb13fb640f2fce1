//! Denies the system calls that a confined program never makes (seccomp(2)).
//!
//! Deny-list        an allow-list would be stronger, but it would break with every libc, allocator or Rust
//!                  library that makes other calls, and kiban is built from source on many systems. So the
//!                  list denies the calls that would help an attacker: access to other programs, processes
//!                  and privileges, namespaces, and rarely used kernel interfaces.
//! clone3           this call takes its flags in memory, which a filter cannot read. So it fails with ENOSYS,
//!                  and libc falls back to clone(2), whose flags are checked.
//! Signals          to other processes are denied, unless the program passes signals on: then
//!                  pidfd_send_signal(2) is allowed, whose target cannot be confused with a later process.
//! Sockets          Unix, IP and netlink (which the resolver needs) are allowed; AF_PACKET and AF_XDP only if
//!                  a link uses them.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen::Dword, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use std::collections::BTreeMap;

/// The effect of a denied system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnRefusal {
    /// The call fails with EPERM.
    Error,
    /// The call kills the process with SIGSYS, so that such calls can be found.
    Kill,
}

/// Calls that remain available in addition to the usual ones: signals to other processes, and socket families
/// other than IP and Unix.
#[derive(Clone, Copy)]
pub(super) struct Allowed {
    pub(super) signals: bool,
    pub(super) packet: bool,
    pub(super) xdp: bool,
}

/// Calls that are denied, whatever their arguments.
const REFUSED: &[libc::c_long] = &[
    // Calls that access other programs and processes.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_kill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_personality,
    // Changes of user and group.
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    // Namespaces, mounts and root directories.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_mount_setattr,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_mknodat,
    // Calls that administer the kernel, its keys and its clocks.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    // Calls with a history of vulnerabilities, none of which kiban uses.
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_fanotify_init,
    libc::SYS_lookup_dcookie,
    libc::SYS_mbind,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_uselib,
];

/// Flags of clone(2) that create namespaces.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];
/// The ioctls TIOCSTI and TIOCLINUX, which inject input into a terminal. The type of these constants differs
/// between C libraries.
const TERMINAL: [u64; 2] = [0x5412, 0x541c];

/// Installs the filters on every thread.
pub(super) fn filter(allowed: Allowed, on_refusal: OnRefusal) -> Result<(), String> {
    let refused = match on_refusal {
        OnRefusal::Error => SeccompAction::Errno(libc::EPERM as u32),
        OnRefusal::Kill => SeccompAction::KillProcess,
    };
    let unknown = SeccompAction::Errno(libc::ENOSYS as u32);
    let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    for (rules, action) in [(clone3, unknown), (rules(allowed)?, refused)] {
        let program = compile(rules, action)?;
        seccompiler::apply_filter_all_threads(&program).map_err(|error| error.to_string())?;
    }
    Ok(())
}

pub(super) type Rules = BTreeMap<i64, Vec<SeccompRule>>;

pub(super) fn compile(rules: Rules, action: SeccompAction) -> Result<BpfProgram, String> {
    let arch = std::env::consts::ARCH;
    let target = arch.try_into().map_err(|_| format!("seccomp filters are not supported on {arch}"))?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, target);
    filter.and_then(TryInto::try_into).map_err(|error| error.to_string())
}

fn rules(allowed: Allowed) -> Result<Rules, String> {
    let rule = |conditions: Vec<(u8, SeccompCmpOp, u64)>| {
        let conditions: Result<Vec<_>, _> = conditions
            .into_iter()
            .map(|(argument, is, value)| SeccompCondition::new(argument, Dword, is, value))
            .collect();
        conditions.and_then(SeccompRule::new).map_err(|error| error.to_string())
    };
    let mut rules: Rules = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    if allowed.signals {
        rules.remove(&libc::SYS_pidfd_send_signal);
    }
    if !allowed.xdp {
        rules.insert(libc::SYS_bpf, Vec::new());
    }
    let of_clone = NAMESPACES.map(|flag| {
        let flag = flag as u32 as u64;
        rule(vec![(0, SeccompCmpOp::MaskedEq(flag), flag)])
    });
    rules.insert(libc::SYS_clone, of_clone.into_iter().collect::<Result<_, _>>()?);
    let of_ioctl = TERMINAL.map(|what| rule(vec![(1, SeccompCmpOp::Eq, what)]));
    rules.insert(libc::SYS_ioctl, of_ioctl.into_iter().collect::<Result<_, _>>()?);
    let usual = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    let more = [(libc::AF_PACKET, allowed.packet), (libc::AF_XDP, allowed.xdp)];
    let families = usual.into_iter().chain(more.into_iter().filter(|(_, is)| *is).map(|(family, _)| family));
    let none_of_them = families.map(|family| (0, SeccompCmpOp::Ne, family as u64)).collect();
    rules.insert(libc::SYS_socket, vec![rule(none_of_them)?]);
    Ok(rules)
}
