//! Drives the NIC: serves its streams, passes on its events, and runs its timers.

use super::board::BoardLink;
use super::file::File;
use super::line::{EndState, ListenSocket, MpaListener};
use super::state::{ASK_EVERY, LinkedNic, Timer};
use crate::efe::EfeLink;
use crate::roce::RoceLink;
use crate::shared::SharedLink;
use kiban_base::Instant;
use kiban_os::turn::Machine;
use kiban_rdma::nic::{CmEvent, NUDGE, NUDGES_MAX};
use rustix::event::epoll::{self, EventFlags};
use std::cmp::Reverse;
use std::mem;
use std::os::fd::AsFd;
use std::time::Duration;

/// Time between two checks whether a responder's reply has arrived, which doubles with each check.
const RECHECK: Duration = Duration::from_millis(1);

impl LinkedNic {
    /// Serves ends in the order of the TX queue.
    pub(super) fn serve(&mut self, now: Instant) {
        if let Some(efe) = &mut self.efe {
            efe.pump(&mut self.nic, now);
        } else if let Some(roce) = &mut self.roce {
            roce.pump(&mut self.nic, now);
        } else {
            while let Some(end) = self.nic.next_resumed() {
                self.set_interest(end);
                self.nic.schedule(end);
                // Data that arrived earlier is not reported a second time.
                self.more |= self.connections.get(&end).is_some_and(|line| !line.transport.is_announced());
            }
            // Ends that have used up their budget are queued again and wait for the next `drive` call.
            let more = mem::take(&mut self.more);
            while let Some(end) = self.nic.next_to_serve() {
                self.write(end, now);
                if mem::take(&mut self.more) {
                    self.more = true;
                    break;
                }
            }
            self.more |= more;
        }
        self.nic.release_invalidated();
        self.dispatch_events(now);
    }

    /// Updates the state of an end, if it has an owner. Returns whether it has.
    pub(super) fn go_on(&mut self, end: u32, how: impl FnOnce(&mut EndState)) -> bool {
        let Some(state) = self.end_states.get_mut(&end) else { return false };
        how(state);
        if let Some(changed) = &mut self.changed {
            changed.push(end);
        }
        true
    }

    /// Dispatches the NIC's events to their recipients.
    pub(super) fn dispatch_events(&mut self, now: Instant) {
        while let Some(event) = self.nic.poll() {
            self.progress = true;
            match event {
                CmEvent::ConnectRequest(request) => self.on_request(request, now),
                CmEvent::Connected { end, private_data } => {
                    if self.nic.peer_may_sleep(end) {
                        self.timers.push(Reverse((now + NUDGE, Timer::Nudge(end, 0))));
                    }
                    self.go_on(end, |state| state.connected = Some(private_data));
                }
                CmEvent::Failed { end, error } => {
                    self.go_on(end, |state| state.failed = Some(error));
                }
                CmEvent::Withdrawn { end } => {
                    self.requests.retain(|request| request.end != end);
                    if self.go_on(end, |state| state.gone = true) {
                    } else if self.connections.contains_key(&end) {
                        self.orphans.push(end);
                    } else {
                        self.forget(end, now);
                    }
                }
                CmEvent::Gone { end }
                    if self.orphans.contains(&end) && !self.connections.contains_key(&end) =>
                {
                    self.forget(end, now);
                }
                CmEvent::Gone { end } => drop(self.go_on(end, |state| state.gone = true)),
            }
        }
        while self.events.len() < self.nic.core.config().events_max
            && let Some(event) = self.nic.core.event()
        {
            self.progress = true;
            self.events.push_back(event);
        }
        while let Some(cq) = self.nic.core.cq_event() {
            self.progress = true;
            self.cq_events.push_back(cq);
        }
        let completions = self.nic.core.counters().completions;
        self.progress |= mem::replace(&mut self.completions_seen, completions) != completions;
    }

    pub(super) fn advance(&mut self, now: Instant) {
        self.nic.settle(now);
        while let Some(&Reverse((at, timer))) = self.timers.peek()
            && at <= now
        {
            self.timers.pop();
            match timer {
                Timer::Hold(end, times) => self.hold(end, times, now),
                Timer::Nudge(end, times) => {
                    if self.nic.nudge(end) && times + 1 < NUDGES_MAX {
                        let later = NUDGE * 2u32.pow(times + 1);
                        self.timers.push(Reverse((now + later, Timer::Nudge(end, times + 1))));
                    }
                }
                Timer::Farewell(end) => {
                    let until = self.connections.get(&end).and_then(|line| line.farewell);
                    if until.is_some_and(|until| until <= now) {
                        self.on_stream_end(end, true, now);
                    }
                }
                Timer::Offer(end) => self.withdraw_offer(end),
                Timer::Parted(number) => drop(self.closing_streams.remove(&number)),
                Timer::PartedFlow(flow) => {
                    if let Some(efe) = &mut self.efe {
                        // This fails if the flow has ended.
                        let _ = efe.endpoint.abort(flow, now);
                    }
                }
                Timer::Listener(number) => {
                    if let Some(MpaListener { entrance: ListenSocket::Socket(listener), .. }) =
                        self.listeners.get(&number)
                    {
                        let data = File::Listener(number).data();
                        // Cannot fail: the listener is watched as long as it exists.
                        let _ = epoll::modify(&self.epoll, listener.as_fd(), data, EventFlags::IN);
                    }
                }
            }
        }
    }

    /// Allows a responder to send once its reply has arrived, although the initiator has not sent yet.
    pub(super) fn hold(&mut self, end: u32, times: u32, now: Instant) {
        let (Some(line), Some(qp)) = (self.connections.get(&end), self.nic.qp_of(end)) else { return };
        if self.nic.core.query_qp(qp).is_ok_and(|(.., traits)| traits.may_send) {
            return;
        }
        if line.transport.is_acknowledged() {
            self.nic.core.may_send(qp);
        } else {
            let later = RECHECK * 2u32.pow(times.min(10));
            self.timers.push(Reverse((now + later, Timer::Hold(end, times + 1))));
        }
    }
}

impl Machine for LinkedNic {
    fn drive(&mut self, now: Instant) {
        self.more = false;
        if self.deadline() <= now {
            self.advance(now);
        }
        if let Some(efe) = &mut self.efe {
            self.more |= efe.take(&mut self.nic, now);
        }
        if let Some(roce) = &mut self.roce {
            self.more |= roce.take(&mut self.nic, now);
        }
        self.drives = self.drives.wrapping_add(1);
        let is_due = self.drives.is_multiple_of(ASK_EVERY);
        // Without a connection, only a listener can have news, as beside connections that are tried directly.
        let is_idle = self.connections.is_empty() && self.board.is_none();
        if is_due || self.direct.is_empty() && !is_idle {
            // While the driver is awake, it polls the board. The board's file only serves to wake the
            // driver.
            if is_due || self.board.is_none() {
                self.ask(now);
            }
            self.look_at_shared(now);
            self.look_at_board(now);
        } else {
            for index in 0..self.direct.len() {
                let Some(&end) = self.direct.get(index) else { break };
                if self.is_worth_a_try(end) {
                    self.read(end, false, now);
                }
            }
        }
        self.serve(now);
    }

    fn settle(&mut self, now: Instant) {
        if let Some(efe) = &mut self.efe {
            efe.settle(now);
        }
        self.flush(now);
    }

    fn flush(&mut self, now: Instant) {
        self.serve(now);
    }

    fn take_progress(&mut self) -> bool {
        mem::take(&mut self.progress)
    }

    fn deadline(&self) -> Instant {
        let own = self.timers.peek().map_or(Instant::NEVER, |Reverse((at, _))| *at);
        let efe = self.efe.as_ref().map_or(Instant::NEVER, EfeLink::deadline);
        let roce = self.roce.as_ref().map_or(Instant::NEVER, RoceLink::deadline);
        own.min(self.nic.deadline()).min(efe).min(roce)
    }

    fn has_more(&self) -> bool {
        let is_rung = |end| self.shared_link(end).is_some_and(|link| !link.is_armed());
        let board_is_rung = self.board.as_ref().is_some_and(BoardLink::is_rung);
        self.more || self.armed && (board_is_rung || self.shared.iter().any(is_rung))
    }

    fn arm(&mut self) {
        self.armed = true;
        self.shared.iter().filter_map(|end| self.shared_link(end)).for_each(SharedLink::arm);
        self.arm_board();
        for index in 0..self.direct.len() {
            self.set_interest(self.direct[index]);
        }
    }

    fn disarm(&mut self) -> Option<u64> {
        self.armed = false;
        let rung = self.shared.iter().filter_map(|end| self.shared_link(end)?.disarm()).min();
        rung.into_iter().chain(self.board.as_ref().and_then(BoardLink::disarm)).min()
    }

    fn after_sleep(&mut self) {
        self.drives = ASK_EVERY - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Connect, Context, Lower, QpOptions};
    use std::net::{Ipv4Addr, SocketAddr};
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(20);

    /// Connects two NICs over TCP and passes them to `look`, the one that accepts second.
    fn connected(options: &Connect, look: impl FnOnce(&Context, &Context)) {
        let [one, two] = [(); 2].map(|()| Context::open(&Lower::Tcp { from: None }).expect("sockets"));
        let sides = [&one, &two].map(|context| {
            let cq = context.create_cq(16).expect("room");
            let pd = context.alloc_pd().expect("room");
            let qp = pd.create_qp(&cq, &cq, QpOptions::default()).expect("room");
            (pd, cq, qp)
        });
        let [(_, _, from), (_, _, to)] = &sides;
        let at = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let listener = two.listen(at.into(), options).expect("an address");
        let _ends = std::thread::scope(|scope| {
            let accepts = || listener.request(LONG)?.accept(to, options);
            let accepted = scope.spawn(accepts);
            let connected = from.connect(listener.address(), options, LONG);
            (connected.expect("there is a listener"), accepted.join().expect("no panic").expect("connected"))
        });
        look(&one, &two);
    }

    #[test]
    fn a_responder_holds_its_first_message_back_for_siw() {
        for (extensions, expected) in [(true, Duration::from_millis(1)), (false, Duration::from_millis(100))]
        {
            connected(&Connect { extensions, ..Connect::default() }, |_, responder| {
                let hold = responder.own(|core, _| {
                    let end = *core.connections.keys().next().expect("a connection");
                    Ok::<_, crate::Error>(core.nic.hold(end))
                });
                assert_eq!(hold.expect("it is this context's NIC"), Some(expected), "{extensions}");
            });
        }
    }

    #[test]
    fn a_timer_of_an_earlier_end_with_the_same_number_does_nothing() {
        connected(&Connect::default(), |one, _| {
            let worked = one.own(|core, now| {
                let ends: Vec<u32> = core.connections.keys().copied().collect();
                assert_eq!(ends.len(), 1);
                core.timers.extend(ends.into_iter().map(|end| Reverse((now, Timer::Farewell(end)))));
                core.advance(now);
                assert_eq!(core.connections.len(), 1);
                Ok::<(), crate::Error>(())
            });
            worked.expect("it is this context's NIC");
        });
    }
}
