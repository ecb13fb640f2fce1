//! Probes RFC 1006 and the transport layer. Each probe sends a CR and reads the answer.

use super::line::{Line, NoAnswer};
use super::{Report, Target, Verdict};
use kiban_osi::transport::{DisconnectReason, Disconnected};
use kiban_osi::wire::cotp::{self, Connect, Tpdu};

const LAYER: &str = "transport";
/// Selectors that products use by default (`01 03` is FTAM's in ISODE). They are tried if the peer accepts
/// only certain selectors.
const SELECTORS_USUAL: [&[u8]; 5] = [b"\0\x01", b"\x01", b"\x01\x03", b"0001", b"FTAM"];
/// Preferred maximum TPDU size to request: 40 × 128, which the older size parameter cannot express.
const PREFERRED_UNITS: u32 = 40;

/// The answer to a CR.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    Confirmed(Box<Connect>),
    Refused(String),
    NoAnswer(NoAnswer),
}

impl Answer {
    /// Describes an answer that is not a CC.
    pub(super) fn words(&self) -> &str {
        match self {
            Answer::Confirmed(_) => "it is confirmed",
            Answer::Refused(words) => words,
            Answer::NoAnswer(no_answer) => &no_answer.words,
        }
    }

    fn is_confirmed(&self) -> bool {
        matches!(self, Answer::Confirmed(_))
    }
}

/// Builds a minimal CR TPDU for class 0.
pub(super) fn request(target: &Target) -> Connect {
    let tsel = target.called.transport.bytes();
    Connect { source: 1, called: (!tsel.is_empty()).then(|| tsel.to_vec()), ..Connect::default() }
}

/// Sends a CR TPDU and waits for the answer.
pub(super) async fn connect(line: &mut Line, request: Connect) -> Answer {
    if let Err(no_answer) = line.send_tpdu(&Tpdu::ConnectRequest(request)).await {
        return Answer::NoAnswer(no_answer);
    }
    let unit = match line.receive().await {
        Ok(unit) => unit,
        Err(no_answer) => return Answer::NoAnswer(no_answer),
    };
    match Tpdu::read(&unit) {
        Ok((Tpdu::ConnectConfirm(confirm), _)) => Answer::Confirmed(Box::new(confirm)),
        Ok((Tpdu::DisconnectRequest { reason, additional, .. }, _)) => {
            let reason = DisconnectReason::of_code(reason);
            Answer::Refused(format!("refused (DR): {}", Disconnected { reason, additional }))
        }
        Ok((Tpdu::Error { cause, .. }, _)) => Answer::Refused(format!("rejected (ER): {cause:?}")),
        Ok(_) => Answer::Refused("answered with an unexpected TPDU".into()),
        Err(rule) => Answer::Refused(format!("the answer is not a valid TPDU ({rule:?})")),
    }
}

async fn again(target: &Target, request: Connect) -> Answer {
    match Line::ready(target).await {
        Ok(mut line) => connect(&mut line, request).await,
        Err(no_answer) => Answer::NoAnswer(no_answer),
    }
}

/// Probes the transport layer; returns whether the upper layers can be probed with the target's transport
/// selector.
pub(super) async fn ask(target: &Target, mut line: Line, report: &mut Report) -> bool {
    let first = connect(&mut line, request(target)).await;
    drop(line);
    report.tpkt = !matches!(first, Answer::NoAnswer(_));
    if let Answer::NoAnswer(no_answer) = &first {
        report.add("TPKT", "RFC 1006", Verdict::No, &no_answer.words);
        return false;
    }
    report.add("TPKT", "RFC 1006", Verdict::Yes, "received a TPDU in a TPKT");
    let verdict = if first.is_confirmed() { Verdict::Yes } else { Verdict::No };
    let Answer::Confirmed(confirm) = &first else {
        report.add(LAYER, "class 0", verdict, first.words());
        selectors(target, report).await;
        return false;
    };
    let words = if confirm.class == 0 {
        "selected".into()
    } else {
        format!("class {} selected instead", confirm.class)
    };
    report.add(LAYER, "class 0", if confirm.class == 0 { verdict } else { Verdict::Unclear }, words);
    classes(target, report).await;
    sizes(target, report).await;
    selectors(target, report).await;
    true
}

/// Probes which other classes the peer accepts.
async fn classes(target: &Target, report: &mut Report) {
    for (class, alternatives, question) in
        [(2, vec![0x00], "class 2, alternatively 0 (RFC 2126)"), (4, Vec::new(), "class 4 only")]
    {
        let answer = again(target, Connect { class, alternatives, ..request(target) }).await;
        let (verdict, words) = match &answer {
            Answer::Confirmed(confirm) if confirm.class == class => (Verdict::Yes, "selected".into()),
            Answer::Confirmed(confirm) => (Verdict::No, format!("class {} selected instead", confirm.class)),
            other => (Verdict::No, other.words().to_owned()),
        };
        report.add(LAYER, question, verdict, words);
    }
}

/// Probes how the peer answers each proposed TPDU size.
async fn sizes(target: &Target, report: &mut Report) {
    let mut largest = None;
    let mut words = Vec::new();
    for code in cotp::SIZE_CODE_MIN..=cotp::SIZE_CODE_MAX {
        let proposed = 1u32 << code;
        let answer = again(target, Connect { tpdu_size: Some(code), ..request(target) }).await;
        words.push(match &answer {
            Answer::Confirmed(confirm) => match confirm.tpdu_size.and_then(cotp::size_bytes) {
                Some(bytes) => {
                    largest = largest.max(Some(bytes.min(proposed)));
                    if bytes == proposed { proposed.to_string() } else { format!("{proposed} -> {bytes}") }
                }
                None => format!("{proposed} -> not stated"),
            },
            Answer::Refused(_) => format!("{proposed} refused"),
            Answer::NoAnswer(no_answer) => format!("{proposed}: {}", no_answer.words),
        });
        if matches!(&answer, Answer::NoAnswer(no_answer) if no_answer.silent) {
            break;
        }
    }
    let verdict = if largest.is_some() { Verdict::Yes } else { Verdict::Unclear };
    report.add(LAYER, "TPDU sizes", verdict, words.join(", "));
    let preferred = Connect { preferred: Some(PREFERRED_UNITS), tpdu_size: Some(12), ..request(target) };
    let (verdict, words) = match again(target, preferred).await {
        Answer::Confirmed(confirm) => match confirm.preferred {
            Some(units) => {
                let bytes = u64::from(units) * u64::from(cotp::PREFERRED_UNIT_BYTES);
                (Verdict::Yes, format!("{} requested, {bytes} returned", PREFERRED_UNITS * 128))
            }
            None => (Verdict::No, "ignored".into()),
        },
        other => (Verdict::No, other.words().to_owned()),
    };
    report.add(LAYER, "preferred maximum TPDU size", verdict, words);
}

/// Probes whether a called selector is required, and whether any value is accepted.
async fn selectors(target: &Target, report: &mut Report) {
    let with = |tsel: Option<&[u8]>| Connect { called: tsel.map(<[u8]>::to_vec), ..request(target) };
    let without = again(target, with(None)).await;
    let nobodys = again(target, with(Some(b"kiban?"))).await;
    let mut taken = Vec::new();
    if !nobodys.is_confirmed() {
        for tsel in SELECTORS_USUAL {
            if again(target, with(Some(tsel))).await.is_confirmed() {
                taken.push(format!(
                    "0x{}",
                    tsel.iter().map(|octet| format!("{octet:02x}")).collect::<String>()
                ));
            }
        }
    }
    let others = match (nobodys.is_confirmed(), taken.is_empty()) {
        (true, _) => "any selector is accepted".to_owned(),
        (false, false) => format!("accepted: {}; try --tsel with one of these", taken.join(", ")),
        (false, true) => {
            "an arbitrary selector and the common ones are refused; give one with --tsel".to_owned()
        }
    };
    let (verdict, none) = match without.is_confirmed() {
        true => (Verdict::No, "an absent selector is accepted"),
        false => (Verdict::Yes, "an absent selector is refused"),
    };
    report.add(LAYER, "called selector (TSEL) needed", verdict, format!("{none}; {others}"));
}
