use super::event::Event;
use super::event::State::{
    self, Sta01, Sta01B, Sta01C, Sta01D, Sta02A, Sta02B, Sta03, Sta05A, Sta08, Sta09, Sta11A, Sta16, Sta713,
};
use super::variables::{Given, Variables};
use super::verdict::{Action, Verdict, verdict};
use crate::session::{Resynchronisation, Tokens, Units};
use crate::table::evaluate;
use Event as E;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use proptest::prelude::*;

const STATES: [(State, &str); 13] = [
    (Sta01, "01"),
    (Sta01B, "01B"),
    (Sta01C, "01C"),
    (Sta01D, "01D"),
    (Sta02A, "02A"),
    (Sta02B, "02B"),
    (Sta03, "03"),
    (Sta05A, "05A"),
    (Sta08, "08"),
    (Sta09, "09"),
    (Sta11A, "11A"),
    (Sta16, "16"),
    (Sta713, "713"),
];

const REUSE: &str = "!p02: SxABind TDISreq 01; p02: SxABind AA [4] 16";
const REUSE_KEPT: &str = "!p02: SxABind TDISreq 01; p02: SxABind AA 01C";
const ABORT: &str = "!p02: AB-nr [4] 16; p02: AB-r [4] 01A";

/// A row of a table: its name, its event, the kind of resynchronisation if the event has one, and the cells
/// that are not empty. PREPARE SPDUs are left out, because they are only sent with transport expedited data;
/// so is action \[6\], which handles the queue that PREPARE SPDUs fill.
type Row = (&'static str, Event, Option<Resynchronisation>, &'static [(&'static str, &'static str)]);

const A: Option<Resynchronisation> = Some(Resynchronisation::Abandon);
const R: Option<Resynchronisation> = Some(Resynchronisation::Restart);
const S: Option<Resynchronisation> = Some(Resynchronisation::Set);

#[rustfmt::skip]
const TABLE: &[Row] = &[
    // Table A.8
    ("AC", E::Ac, None, &[("01C", "TDISreq 01"), ("02A", "SCONcnf+ [5] [11] 713"), ("16", "16")]),
    ("CDO", E::Cdo, None, &[("01C", "TDISreq 01"), ("01D", "!p202: [50] 01D; p202: SCONind 08")]),
    ("CN", E::Cn, None, &[
        ("01C", "!p01&!p76&p204: OA [50] 01D; !p01&!p76&!p204: SCONind 08; !p01&p76&!p02: RF-nr [4] 16; !p01&p76&p02: RF-r 01C; p01: TDISreq 01"),
        ("16", "TDISreq [3] 01")]),
    ("OA", E::Oa, None, &[("01C", "TDISreq 01"), ("02B", "CDO 02A")]),
    ("RF-nr", E::RfNr, None, &[("01C", "TDISreq 01"), ("02A", "SCONcnf- TDISreq 01"), ("02B", "SCONcnf- TDISreq 01"), ("16", "16")]),
    ("RF-r", E::RfR, None, &[("01C", "TDISreq 01"),
        ("02A", "!p02: SCONcnf- TDISreq 01; p02: SCONcnf- 01C"), ("02B", "!p02: SCONcnf- TDISreq 01; p02: SCONcnf- 01C"), ("16", "16")]),
    ("SCONreq", E::SConReq, None, &[("01", "TCONreq [2] 01B"), ("01C", "p01&p204: CN 02B; p01&!p204: CN 02A")]),
    ("SCONrsp+", E::SConRspAccept, None, &[("08", "AC [5] [11] 713")]),
    ("SCONrsp-", E::SConRspRefuse, None, &[("08", "!p02: RF-nr [4] 16; p02: RF-r 01C")]),
    ("TCONcnf", E::TConCnf, None, &[("01B", "p204: CN 02B; !p204: CN 02A")]),
    ("TCONind", E::TConInd, None, &[("01", "TCONrsp [1] 01C")]),
    // Table A.9
    ("DT", E::Dt, None, &[("01C", "TDISreq 01"), ("01D", "TDISreq 01"), ("03", "p05&p10: SDTind 03"),
        ("05A", "p05&p185: 05A; p05&!p185: SDTind 05A"), ("11A", "p05&!p185: SDTind 11A"), ("16", "16"), ("713", "p05: SDTind 713")]),
    ("TD", E::Td, None, &[("01C", "TDISreq 01"), ("01D", "TDISreq 01"), ("03", "p06&p10: STDind 03"),
        ("05A", "p06&p185: 05A; p06&!p185: STDind 05A"), ("16", "16"), ("713", "p06: STDind 713")]),
    ("SDTreq", E::SDtReq, None, &[("09", "p04: DT 09"), ("713", "p03: DT 713")]),
    ("STDreq", E::STdReq, None, &[("09", "p07: TD 09"), ("713", "p06: TD 713")]),
    // Table A.10
    ("MIA", E::Mia, None, &[("01C", "TDISreq 01"), ("01D", "TDISreq 01"), ("03", "p17&p21: SSYNmcnf [25] 03"),
        ("05A", "p17&!p81: 05A; p17&p21&p81: SSYNmcnf [25] 05A"), ("16", "16"), ("713", "p17&p21: SSYNmcnf [25] 713")]),
    ("MIP", E::Mip, None, &[("01C", "TDISreq 01"), ("01D", "TDISreq 01"),
        ("05A", "p14&!p178&p185: 05A; !p178&!p185&p26: SSYNmind [23] 05A"), ("16", "16"), ("713", "p14&p19: SSYNmind [23] 713")]),
    ("SSYNmreq", E::SSynReq, None, &[("713", "p15: MIP [24] 713")]),
    ("SSYNmrsp", E::SSynRsp, None, &[("09", "p18&p21: MIA [25] 09"), ("713", "p18&p21: MIA [25] 713")]),
    // Table A.11
    ("RA", E::Ra, None, &[("01C", "TDISreq 01"), ("01D", "TDISreq 01"), ("05A", "p35&p49: SRSYNcnf [28] [11] 713"), ("16", "16")]),
    ("RS-a", E::Rs, A, &[("01C", "TDISreq 01"), ("01D", "TDISreq 01"), ("03", "p10&!p34&p35: [19] SRSYNind [16] 11A"),
        ("05A", "!p24&p35: 05A; p24&p35: [19] SRSYNind [16] 11A"), ("16", "16"), ("713", "p26&p35: [19] SRSYNind [16] 11A")]),
    ("RS-r", E::Rs, R, &[("01C", "TDISreq 01"), ("01D", "TDISreq 01"), ("03", "p10&!p34&p35&p32: SRSYNind [16] 11A"),
        ("05A", "!p24&p32&p35: 05A; p24&p32&p35: SRSYNind [16] 11A"), ("16", "16"), ("713", "p32&p26&p35: SRSYNind [16] 11A")]),
    ("RS-s", E::Rs, S, &[("01C", "TDISreq 01"), ("01D", "TDISreq 01"), ("03", "p10&!p34&p35: SRSYNind [16] 11A"),
        ("05A", "!p24&p35: 05A; p24&p35: SRSYNind [16] 11A"), ("16", "16"), ("713", "p26&p35: SRSYNind [16] 11A")]),
    ("SRSYNreq(a)", E::SRsynReq, A, &[("09", "p10&p28&!p34: RS [16] 05A"), ("11A", "p24: RS [16] 05A"), ("713", "p29: RS [16] 05A")]),
    ("SRSYNreq(r)", E::SRsynReq, R, &[("09", "p10&p25&!p34&p33: RS [16] 05A"), ("11A", "p24&p33: RS [16] 05A"), ("713", "p25&p26&p33: RS [16] 05A")]),
    ("SRSYNreq(s)", E::SRsynReq, S, &[("09", "p10&p25&!p34: RS [16] 05A"), ("11A", "p24: RS [16] 05A"), ("713", "p25&p26: RS [16] 05A")]),
    ("SRSYNrsp", E::SRsynRsp, None, &[("11A", "p43: RA [28] [11] 713")]),
    // Table A.14
    ("GT", E::Gt, None, &[("01C", "TDISreq 01"), ("01D", "TDISreq 01"),
        ("05A", "p59&p185: 05A; p59&!p185: SGTind [11] 05A"), ("16", "16"), ("713", "p59: SGTind [11] 713")]),
    ("PT", E::Pt, None, &[("01C", "TDISreq 01"), ("01D", "TDISreq 01"), ("03", "p53: SPTind 03"),
        ("05A", "p53&p185: 05A; p53&!p185: SPTind 05A"), ("16", "16"), ("713", "p53: SPTind 713")]),
    ("SGTreq", E::SGtReq, None, &[("713", "p54: GT [11] 713")]),
    ("SPTreq", E::SPtReq, None, &[("09", "p53: PT 09"), ("713", "p53: PT 713")]),
    // Tables A.9 to A.14 without the rows for EX, MAP, MAA, AS, ED, ER, GTC and others, whose predicates need
    // functional units that are not selected.
    ("others", E::Other, None, &[("01C", "TDISreq 01"), ("01D", "TDISreq 01"), ("16", "16")]),
    // Table A.15
    ("DN", E::Dn, None, &[("01C", "TDISreq 01"), ("01D", "TDISreq 01"), ("03", "!p66: SRELcnf+ TDISreq 01; p66: SRELcnf+ 01C"),
        ("09", "p69&!p01: SRELcnf+ [32] 09"), ("16", "16")]),
    ("FN-nr", E::FnNr, None, &[("01C", "TDISreq 01"), ("01D", "TDISreq 01"), ("03", "!p65: SRELind [8] [18] 09"),
        ("05A", "p68: 05A"), ("16", "16"), ("713", "p68: SRELind [8] 09")]),
    ("FN-r", E::FnR, None, &[("01C", "TDISreq 01"), ("01D", "TDISreq 01"), ("03", "!p65&!p01&p16: SRELind [8] [18] 09"),
        ("05A", "p68&!p01&p16: 05A"), ("16", "16"), ("713", "p68&!p01&p16: SRELind [9] 09")]),
    ("NF", E::Nf, None, &[("01C", "TDISreq 01"), ("01D", "TDISreq 01"), ("03", "p67: SRELcnf- 713"), ("16", "16")]),
    ("SRELreq", E::SRelReq, None, &[("09", "!p65: FN-nr [8] [18] 09"), ("713", "p63&!p64: FN-nr [8] 03; p63&p64: FN-r [7] 03")]),
    ("SRELrsp+", E::SRelRspAccept, None, &[("09", "!p66&p75: DN [4] 16; p66: DN 01C; p69&p01: DN 03")]),
    ("SRELrsp-", E::SRelRspReject, None, &[("09", "p67: NF 713")]),
    // Table A.16
    ("AA", E::Aa, None, &[("01C", "TDISreq 01"), ("01D", "TDISreq 01"), ("16", "[3] TDISreq 01")]),
    ("AB-nr", E::AbNr, None, &[("01C", "TDISreq 01"), ("01D", "TDISreq 01"), ("02A", REUSE), ("02B", "SxABind TDISreq 01"), ("03", REUSE),
        ("05A", REUSE), ("08", REUSE), ("09", REUSE), ("11A", REUSE), ("16", "[3] TDISreq 01"), ("713", REUSE)]),
    ("AB-r", E::AbR, None, &[("01C", "!p02: TDISreq 01; p02: AA 01C"), ("01D", "!p02: TDISreq 01; p02: AA 01C"), ("02A", REUSE_KEPT),
        ("02B", REUSE_KEPT), ("03", REUSE_KEPT), ("05A", REUSE_KEPT), ("08", REUSE_KEPT), ("09", REUSE_KEPT), ("11A", REUSE_KEPT),
        ("16", "[3] TDISreq 01"), ("713", REUSE_KEPT)]),
    ("SUABreq", E::SUabReq, None, &[("01B", "TDISreq 01"), ("02A", ABORT), ("02B", ABORT), ("03", ABORT), ("05A", ABORT), ("08", ABORT),
        ("09", ABORT), ("11A", ABORT), ("713", ABORT)]),
    ("TDISind", E::TDisInd, None, &[("01B", "SPABind 01"), ("01C", "01"), ("01D", "01"), ("02A", "SPABind 01"), ("02B", "SPABind 01"),
        ("03", "SPABind 01"), ("05A", "SPABind 01"), ("08", "SPABind 01"), ("09", "SPABind 01"), ("11A", "SPABind 01"),
        ("16", "[3] 01"), ("713", "SPABind 01")]),
    ("TIM", E::Tim, None, &[("16", "TDISreq 01")]),
];

/// Evaluates a predicate of Table A.7, given the functional units that are never selected and this
/// implementation's choices.
fn predicate(name: &str, event: Event, v: &Variables, given: &Given) -> bool {
    let sy = v.units.has(Units::MINOR_SYNCHRONISE);
    let resyn = v.units.has(Units::RESYNCHRONISE);
    // The functions AV, I, A, II and AA for the synchronise-minor token, the only one that can be available.
    let (i, a, ii, aa) = (!sy || v.owns_minor, !sy || !v.owns_minor, sy && v.owns_minor, sy && !v.owns_minor);
    let all = |f: bool| given.tokens.is_empty() || given.tokens == Tokens::MINOR && f;
    let sn = given.serial;
    let spm_winner = {
        let order = |kind| match kind {
            Resynchronisation::Abandon => 0,
            Resynchronisation::Set => 1,
            Resynchronisation::Restart => 2,
        };
        // If two resynchronisations collide, the one with the lower (kind, serial number) prevails.
        let number = |kind, number: u32| if kind == Resynchronisation::Restart { number } else { 0 };
        let new = (order(given.kind), number(given.kind, sn));
        let current = v.vrsp.map(|kind| (order(kind), number(kind, v.vrspnb)));
        let by_initiator = if event == E::Rs { !v.initiator } else { v.initiator };
        match current {
            None => false,
            Some(current) if current == new => !by_initiator,
            Some(current) => current < new,
        }
    };
    match name {
        "p01" => v.initiator,
        "p02" | "p34" | "p64" | "p66" | "p67" | "p81" | "p178" => false,
        "p16" | "p26" | "p03" | "p05" => true,
        "p04" | "p10" => !v.vcoll,
        "p06" => v.units.has(Units::TYPED_DATA),
        "p07" => v.units.has(Units::TYPED_DATA) && !v.vcoll,
        "p14" => aa,
        "p15" => ii,
        "p17" => sy && !v.vsc,
        "p18" => sy && v.vsc,
        "p19" => sn == v.vm,
        "p21" => v.vm > sn && sn >= v.va,
        "p24" => !spm_winner,
        "p25" => sy && resyn,
        "p28" | "p29" | "p35" => resyn,
        "p32" => given.kind != Resynchronisation::Restart || sn >= v.vr,
        "p33" => v.vm >= sn && sn >= v.vr,
        "p43" => match v.vrsp {
            Some(Resynchronisation::Restart) => sn == v.vrspnb,
            Some(Resynchronisation::Abandon) => sn == v.vm,
            other => other.is_some(),
        },
        "p49" => match v.vrsp {
            Some(Resynchronisation::Restart) => sn == v.vrspnb,
            Some(Resynchronisation::Abandon) => sn >= v.vm,
            other => other.is_some(),
        },
        "p53" => all(sy),
        "p54" => all(ii),
        "p59" => all(aa),
        "p63" => i,
        "p65" => sy,
        "p68" => a,
        "p69" => v.vcoll,
        "p75" => !v.vcoll || v.vdnr,
        "p76" => given.unacceptable,
        "p185" => v.discard,
        "p202" => given.end,
        "p204" => given.overflow,
        other => panic!("{other} is no predicate"),
    }
}

fn name(action: Action) -> &'static str {
    match action {
        Action::SConInd => "SCONind",
        Action::SConCnfAccept => "SCONcnf+",
        Action::SConCnfRefuse => "SCONcnf-",
        Action::SDtInd => "SDTind",
        Action::STdInd => "STDind",
        Action::SGtInd => "SGTind",
        Action::SPtInd => "SPTind",
        Action::SSynInd => "SSYNmind",
        Action::SSynCnf => "SSYNmcnf",
        Action::SRsynInd => "SRSYNind",
        Action::SRsynCnf => "SRSYNcnf",
        Action::SRelInd => "SRELind",
        Action::SRelCnf => "SRELcnf+",
        Action::SPabInd => "SPABind",
        Action::SxabInd => "SxABind",
        Action::TConReq => "TCONreq",
        Action::TConRsp => "TCONrsp",
        Action::TDisReq => "TDISreq",
        Action::Ac => "AC",
        Action::Ab => "AB-nr",
        Action::Cdo => "CDO",
        Action::Cn => "CN",
        Action::Dn => "DN",
        Action::Dt => "DT",
        Action::Fn => "FN-nr",
        Action::Gt => "GT",
        Action::Mia => "MIA",
        Action::Mip => "MIP",
        Action::Oa => "OA",
        Action::Pt => "PT",
        Action::Ra => "RA",
        Action::Rf => "RF-nr",
        Action::Rs => "RS",
        Action::Td => "TD",
        Action::Acceptor => "[1]",
        Action::Initiator => "[2]",
        Action::StopTim => "[3]",
        Action::StartTim => "[4]",
        Action::SetUp => "[5]",
        Action::UpdateTokens => "[11]",
        Action::BeginResync => "[16]",
        Action::SetCollision => "[18]",
        Action::RaiseNext => "[19]",
        Action::PointIn => "[23]",
        Action::PointOut => "[24]",
        Action::Confirmed => "[25]",
        Action::EndResync => "[28]",
        Action::DisconnectIn => "[32]",
        Action::Preserve => "[50]",
    }
}

fn kind() -> impl Strategy<Value = Resynchronisation> {
    prop::sample::select(
        &[Resynchronisation::Abandon, Resynchronisation::Restart, Resynchronisation::Set][..],
    )
}

fn variables() -> impl Strategy<Value = Variables> {
    (any::<[bool; 9]>(), 0..5u32, 0..4u32, 0..3u32, proptest::option::of(kind()), 0..5u32).prop_map(
        |(bits, va, more, vr, vrsp, vrspnb)| {
            let [sy, resyn, td, owns_minor, initiator, vsc, vcoll, vdnr, discard] = bits;
            let mut units = Units::DUPLEX;
            for (unit, selected) in
                [(Units::MINOR_SYNCHRONISE, sy), (Units::RESYNCHRONISE, resyn), (Units::TYPED_DATA, td)]
            {
                units = if selected { units | unit } else { units };
            }
            Variables {
                units,
                owns_minor,
                initiator,
                va,
                vm: va + more,
                vr,
                vsc,
                vcoll,
                // Vdnr is set only after a release collision, at the end that did not initiate the transport
                // connection.
                vdnr: vdnr && vcoll && !initiator,
                vrsp,
                vrspnb,
                discard,
            }
        },
    )
}

fn given() -> impl Strategy<Value = Given> {
    let tokens = prop::sample::select(&[Tokens::NONE, Tokens::MINOR, Tokens::DATA, Tokens(0x14)][..]);
    (0..9u32, kind(), tokens, any::<[bool; 3]>()).prop_map(|(serial, kind, tokens, bits)| Given {
        serial,
        kind,
        tokens,
        overflow: bits[0],
        unacceptable: bits[1],
        end: bits[2],
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]
    #[test]
    fn every_cell_matches_the_standard(v in variables(), given in given()) {
        for (row, event, kind, cells) in TABLE {
            let given = Given { kind: kind.unwrap_or(given.kind), ..given };
            for (state, state_name) in STATES {
                let cell = cells.iter().find(|(name, _)| *name == state_name).map_or("", |(_, cell)| cell);
                let expected = evaluate(cell, &mut |name| predicate(name, *event, &v, &given)).map(|(actions, next)| {
                    let done = |action: &String| !matches!(&action[..], "[7]" | "[8]" | "[9]");
                    (actions.into_iter().filter(done).collect::<Vec<_>>(), next)
                });
                let found = match verdict(state, *event, &v, &given) {
                    Verdict::Invalid => None,
                    Verdict::Go(actions, next) => {
                        let next = STATES.iter().find(|(state, _)| *state == next).expect("a state").1;
                        Some((actions.iter().map(|action| name(*action).to_string()).collect(), next.to_string()))
                    }
                };
                prop_assert_eq!(found, expected, "{} in STA{}", row, state_name);
            }
        }
    }
}

#[test]
fn the_table_has_every_event_and_only_valid_states() {
    for (row, _, _, cells) in TABLE {
        for (state, _) in *cells {
            assert!(STATES.iter().any(|(_, name)| name == state), "{row} in {state}");
        }
    }
    let events: Vec<u8> = TABLE.iter().map(|(_, event, ..)| *event as u8).collect();
    assert!((0..=E::Other as u8).all(|event| events.contains(&event)));
}
