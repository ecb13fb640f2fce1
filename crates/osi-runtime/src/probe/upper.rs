//! Probes session, presentation, ACSE and FTAM. Each probe sends one CONNECT that carries the PDUs of all
//! layers, and reads the answer.

use super::line::{Line, NoAnswer};
use super::transport::{self, Answer};
use super::{Caller, Report, Target, Verdict};
use kiban_base::Rope;
use kiban_osi::session::OFFERED;
use kiban_osi::wire::acse::{
    ABSTRACT_SYNTAX, Aare, Aarq, Apdu, AssociateDiagnostic, AssociateResult, UserDiagnostic, Version,
};
use kiban_osi::wire::ber::{Asn1, External, Oid};
use kiban_osi::wire::ftam::{self, ContentsTypeList, ContentsTypeName, DocumentTypeName, oids};
use kiban_osi::wire::presentation::{
    self as ppdu, BER, ContextDefinition, ContextResult, Cp, CpParameters, Cpa, Cpr, ModeSelector, Pdv,
    UserData,
};
use kiban_osi::wire::session::{self as spdu, Spdu, TokenSettings, Tsdu, TsduSizes, Units, Versions};
use kiban_osi::wire::{cotp, tpkt};

const BOTH: Versions = Versions::V1.or(Versions::V2);

/// An application that the peer may support.
struct Application {
    name: &'static str,
    context: Oid,
    syntaxes: &'static [(Oid, &'static str)],
    /// Builds the user information, in the context of the first of `syntaxes`.
    first_words: fn(&Caller) -> Vec<u8>,
}

const APPLICATIONS: [Application; 5] = [
    Application {
        name: "FTAM",
        context: oids::APPLICATION_CONTEXT,
        syntaxes: &[
            (oids::PCI, "FTAM PCI"),
            (oids::FADU, "FTAM FADU"),
            (oids::UNSTRUCTURED_TEXT, "unstructured text"),
            (oids::UNSTRUCTURED_BINARY, "unstructured binary"),
            (oids::NBS_DIRECTORY_ENTRY, "NBS-9 directory"),
        ],
        first_words: initialize,
    },
    Application {
        name: "MMS",
        context: Oid::of("1.0.9506.2.3"),
        syntaxes: &[(Oid::of("1.0.9506.2.1"), "MMS")],
        first_words: |_| MMS_INITIATE.to_vec(),
    },
    Application {
        name: "CMIP",
        context: Oid::of("2.9.0.0.2"),
        syntaxes: &[(Oid::of("2.9.1.1.4"), "CMIP")],
        first_words: |_| Vec::new(),
    },
    Application {
        name: "X.500 directory access",
        context: Oid::of("2.5.3.1"),
        syntaxes: &[(Oid::of("2.5.9.1"), "DAP")],
        first_words: |_| Vec::new(),
    },
    Application {
        name: "a nonexistent application",
        context: Oid::of("2.999.7.8"),
        syntaxes: &[(Oid::of("2.999.7.9"), "an unknown syntax")],
        first_words: |_| Vec::new(),
    },
];

/// Initiate-Request (ISO 9506-2): version 1, with the parameters and services of a simple client.
const MMS_INITIATE: [u8; 40] = [
    0xa8, 0x26, 0x80, 0x03, 0x00, 0xfd, 0xe8, 0x81, 0x01, 0x0a, 0x82, 0x01, 0x0a, 0x83, 0x01, 0x05, 0xa4,
    0x16, 0x80, 0x01, 0x01, 0x81, 0x03, 0x05, 0xf1, 0x00, 0x82, 0x0c, 0x03, 0xee, 0x1c, 0x00, 0x00, 0x04,
    0x08, 0x00, 0x00, 0x79, 0xef, 0x18,
];

/// Returns an F-INITIALIZE request that asks for everything but recovery.
fn initialize(caller: &Caller) -> Vec<u8> {
    let document = |oid| ContentsTypeName::Document(DocumentTypeName(oid));
    let request = ftam::InitializeRequest {
        protocol_version: ftam::ProtocolVersion::VERSION_1 | ftam::ProtocolVersion::VERSION_2,
        implementation_information: None,
        presentation_context_management: false,
        service_class: ftam::ServiceClass::TRANSFER
            | ftam::ServiceClass::MANAGEMENT
            | ftam::ServiceClass::TRANSFER_AND_MANAGEMENT,
        functional_units: ftam::FunctionalUnits::READ
            | ftam::FunctionalUnits::WRITE
            | ftam::FunctionalUnits::LIMITED_FILE_MANAGEMENT
            | ftam::FunctionalUnits::ENHANCED_FILE_MANAGEMENT
            | ftam::FunctionalUnits::GROUPING,
        attribute_groups: ftam::AttributeGroups::STORAGE,
        shared_ase_information: None,
        ftam_quality_of_service: ftam::QualityOfService::NO_RECOVERY,
        contents_type_list: Some(ContentsTypeList(
            [oids::FTAM_1, oids::FTAM_3, oids::NBS_9].map(document).to_vec(),
        )),
        initiator_identity: caller.user.as_deref().map(|user| ftam::UserIdentity(user.into())),
        account: None,
        filestore_password: caller.password.as_deref().map(Into::into),
        checkpoint_window: 1,
    };
    ftam::Pdu::InitializeRequest(Box::new(request)).to_vec()
}

/// One proposal to the peer.
#[derive(Clone, Copy)]
struct Proposal<'a> {
    application: &'a Application,
    units: Units,
    versions: Versions,
}

/// The parts of the answer that could be decoded.
#[derive(Default)]
struct Reply {
    /// The session layer's answer.
    session: Option<Session>,
    results: Vec<ContextResult>,
    provider_reason: Option<ppdu::ProviderReason>,
    aare: Option<Box<Aare>>,
    /// A description of the decoding error.
    fault: Option<String>,
    silent: bool,
}

enum Session {
    Accept { versions: Versions, units: Units },
    Refuse { reason: spdu::RefuseReason },
    Abort { user: bool },
}

impl Reply {
    /// Returns whether the session layer or a higher layer has answered.
    fn is_of_session(&self) -> bool {
        self.session.is_some()
    }

    fn is_accepted(&self) -> bool {
        matches!(self.session, Some(Session::Accept { .. }))
    }

    /// Describes the session layer's answer.
    fn words(&self) -> String {
        match &self.session {
            Some(Session::Accept { .. }) => "accepted".into(),
            Some(Session::Refuse { reason: spdu::RefuseReason::UserData }) => {
                "accepted by session; refused by a layer above it".into()
            }
            Some(Session::Refuse { reason }) => format!("refused: {}", refuse_words(*reason)),
            Some(Session::Abort { user: true }) => "aborted by a layer above session".into(),
            Some(Session::Abort { user: false }) => "aborted by session".into(),
            None => self.fault.clone().unwrap_or_else(|| "no answer".into()),
        }
    }
}

fn refuse_words(reason: spdu::RefuseReason) -> String {
    match reason {
        spdu::RefuseReason::SelectorUnknown => format!("{reason}; give one with --ssel"),
        reason => reason.to_string(),
    }
}

/// Probes the upper layers.
pub(super) async fn ask(target: &Target, report: &mut Report) {
    let versions = versions(target).await;
    let mut replies = Vec::new();
    for application in &APPLICATIONS {
        let reply = propose(target, Proposal { application, units: Units::DUPLEX, versions }).await;
        let silent = reply.silent && !reply.is_of_session();
        replies.push((application, reply));
        if silent {
            break;
        }
    }
    // The remaining questions use the proposal that most layers accepted.
    let best = replies
        .iter()
        .max_by_key(|(_, reply)| (reply.is_accepted(), reply.aare.is_some(), reply.is_of_session()))
        .map(|(application, _)| *application);
    if !replies.iter().any(|(_, reply)| reply.is_of_session()) {
        let words = replies.first().map(|(_, reply)| reply.words()).unwrap_or_default();
        return report.add("session", "CONNECT", Verdict::No, words);
    }
    let words = match versions == BOTH || target.versions.is_some() {
        true => "answered".into(),
        false => format!("answered if only version {versions:?} is proposed; give it with --session-version"),
    };
    report.add("session", "CONNECT", Verdict::Yes, words);
    if let Some(application) = best {
        session(target, application, versions, report).await;
    }
    for (application, reply) in &replies {
        contexts(application, reply, report);
    }
    for (application, reply) in &replies {
        association(application, reply, report);
    }
    for (_, reply) in replies.iter().filter(|(application, _)| application.name == "FTAM") {
        files(&target.caller, reply, report);
    }
}

/// Returns the session versions to propose: those that the caller has chosen, or else the first proposal that
/// the peer answers. Some implementations accept only one version, and only if the other is not proposed.
async fn versions(target: &Target) -> Versions {
    if let Some(versions) = target.versions {
        return versions;
    }
    for versions in [BOTH, Versions::V2, Versions::V1] {
        let proposal = Proposal { application: &APPLICATIONS[0], units: Units::DUPLEX, versions };
        let reply = propose(target, proposal).await;
        // Some implementations report the version as a restriction.
        let by_version = matches!(
            reply.session,
            Some(Session::Refuse {
                reason: spdu::RefuseReason::Version | spdu::RefuseReason::ProviderRestriction
            })
        );
        if reply.is_of_session() && !by_version {
            return versions;
        }
    }
    BOTH
}

/// Probes session versions and functional units.
async fn session(target: &Target, application: &Application, versions: Versions, report: &mut Report) {
    for (versions, question) in [(Versions::V1, "version 1 only"), (Versions::V2, "version 2 only")] {
        let reply = propose(target, Proposal { application, units: Units::DUPLEX, versions }).await;
        let (verdict, words) = match &reply.session {
            Some(Session::Accept { versions: selected, .. }) if selected.has_any(versions) => {
                (Verdict::Yes, "accepted".into())
            }
            Some(Session::Accept { versions, .. }) => (Verdict::No, format!("{versions:?} selected instead")),
            Some(Session::Refuse { reason: spdu::RefuseReason::UserData | spdu::RefuseReason::User }) => {
                (Verdict::Yes, reply.words())
            }
            _ => (Verdict::No, reply.words()),
        };
        report.add("session", question, verdict, words);
    }
    for (units, question) in [
        (OFFERED, "duplex, synchronise, resynchronise, typed data"),
        (Units::HALF_DUPLEX, "half-duplex only"),
    ] {
        let reply = propose(target, Proposal { application, units, versions }).await;
        let (verdict, words) = match &reply.session {
            Some(Session::Accept { units: selected, .. }) => {
                let common = selected.and(units);
                let verdict = if common.is_empty() { Verdict::No } else { Verdict::Yes };
                (verdict, format!("selected {selected:?}"))
            }
            _ => (Verdict::Unclear, reply.words()),
        };
        report.add("session", format!("units: {question}"), verdict, words);
    }
}

/// Reports which presentation contexts were accepted.
fn contexts(application: &Application, reply: &Reply, report: &mut Report) {
    let question = format!("contexts of {}", application.name);
    if reply.results.is_empty() {
        let words = match &reply.provider_reason {
            Some(reason) if *reason == ppdu::ProviderReason::CALLED_ADDRESS_UNKNOWN => {
                format!("presentation refuses: {reason:?}; give another selector with --psel or --tsel")
            }
            Some(reason) => format!("presentation refuses: {reason:?}"),
            None => format!("no result for contexts ({})", reply.words()),
        };
        return report.add("presentation", question, Verdict::Unclear, words);
    }
    let names = std::iter::once("ACSE").chain(application.syntaxes.iter().map(|(_, name)| *name));
    let words = names.zip(&reply.results).map(|(name, result)| {
        let is = if result.is_acceptance() { "yes" } else { "no" };
        format!("{name}: {is}")
    });
    let words: Vec<String> = words.collect();
    let taken = reply.results.iter().skip(1).any(ContextResult::is_acceptance);
    report.add("presentation", question, if taken { Verdict::Yes } else { Verdict::No }, words.join(", "));
}

/// Reports the answers from ACSE and its user.
fn association(application: &Application, reply: &Reply, report: &mut Report) {
    let Some(aare) = &reply.aare else {
        return report.add(
            "ACSE",
            application.name,
            Verdict::Unclear,
            format!("no answer from ACSE: {}", reply.words()),
        );
    };
    let mut words = match (aare.result == AssociateResult::ACCEPTED, &aare.diagnostic) {
        (true, _) => "accepted".to_owned(),
        // FTAM gives its reason in its own response.
        (false, AssociateDiagnostic::ServiceUser(UserDiagnostic::NULL)) => {
            format!("ACSE answers; {} refused the association", application.name)
        }
        (false, AssociateDiagnostic::ServiceUser(diagnostic)) => format!("refused: {diagnostic:?}"),
        (false, AssociateDiagnostic::ServiceProvider(diagnostic)) => {
            format!("refused by ACSE: {diagnostic:?}")
        }
    };
    if aare.application_context != application.context {
        words += &format!("; application context {}", aare.application_context);
    }
    if let Some(about) = &aare.implementation {
        words += &format!("; implementation \"{about}\"");
    }
    let verdict = if aare.result == AssociateResult::ACCEPTED { Verdict::Yes } else { Verdict::No };
    report.add("ACSE", application.name, verdict, words);
}

/// Reports FTAM's answer.
fn files(caller: &Caller, reply: &Reply, report: &mut Report) {
    let question = match &caller.user {
        Some(user) => format!("F-INITIALIZE as {user}"),
        None => "F-INITIALIZE without a user".into(),
    };
    let information = reply.aare.as_ref().and_then(|aare| aare.user_information.as_ref());
    let values = information.into_iter().flatten().map(|external| Pdv::from(external.clone()));
    let fpdus = values.filter_map(|pdv| ftam::Pdu::read(&pdv.into_octets().to_vec()).ok());
    let Some(response) = fpdus.into_iter().find_map(|(pdu, _)| match pdu {
        ftam::Pdu::InitializeResponse(response) => Some(response),
        _ => None,
    }) else {
        return report.add("FTAM", question, Verdict::No, "no answer from FTAM");
    };
    let accepted = response.state_result == ftam::StateResult::SUCCESS;
    let mut words = vec![if accepted { "accepted".to_owned() } else { "refused by FTAM".into() }];
    for item in response.diagnostic.iter().flat_map(|diagnostic| &diagnostic.0) {
        let number = ftam::ErrorIdentifier(item.error_identifier);
        let details = item.further_details.as_ref().map(|text| format!(" (\"{text}\")")).unwrap_or_default();
        words.push(format!("diagnostic {number}{details}"));
    }
    if let Some(about) = &response.implementation_information {
        words.push(format!("implementation \"{}\"", about.0));
    }
    report.add("FTAM", question, Verdict::Yes, words.join("; "));
    if accepted {
        let words = format!(
            "classes {:?}, units {:?}, attributes {:?}",
            response.service_class, response.functional_units, response.attribute_groups
        );
        report.add("FTAM", "offered service", Verdict::Yes, words);
        let documents = response.contents_type_list.iter().flat_map(|list| &list.0).map(|item| match item {
            ContentsTypeName::Document(name) => document_words(name.0),
            ContentsTypeName::AbstractSyntax(name) => name.0.to_string(),
        });
        let documents: Vec<String> = documents.collect();
        let verdict = if documents.is_empty() { Verdict::Unclear } else { Verdict::Yes };
        report.add("FTAM", "document types", verdict, documents.join(", "));
    }
}

fn document_words(oid: Oid) -> String {
    match oid {
        oids::FTAM_1 => "FTAM-1 (text)".into(),
        oids::FTAM_2 => "FTAM-2 (records)".into(),
        oids::FTAM_3 => "FTAM-3 (binary)".into(),
        oids::NBS_9 => "NBS-9 (directory)".into(),
        other => other.to_string(),
    }
}

/// Makes one proposal on a separate connection, and aborts any association that results.
async fn propose(target: &Target, proposal: Proposal<'_>) -> Reply {
    match conversation(target, proposal).await {
        Ok(reply) => reply,
        Err(NoAnswer { words, silent }) => Reply { fault: Some(words), silent, ..Reply::default() },
    }
}

async fn conversation(target: &Target, proposal: Proposal<'_>) -> Result<Reply, NoAnswer> {
    let mut line = Line::ready(target).await?;
    let confirm = match transport::connect(&mut line, transport::request(target)).await {
        Answer::Confirmed(confirm) => confirm,
        Answer::Refused(words) => return Ok(Reply { fault: Some(words), ..Reply::default() }),
        Answer::NoAnswer(no_answer) => return Err(no_answer),
    };
    let tpdu_bytes_max =
        confirm.tpdu_size.and_then(cotp::size_bytes).map_or(tpkt::TPDU_BYTES_MAX, |bytes| bytes as usize);
    let tpdu_bytes_max = tpdu_bytes_max.min(tpkt::TPDU_BYTES_MAX);
    line.send_data(&connect_of(target, proposal).to_vec(), tpdu_bytes_max).await?;
    let reply = read(line.receive_data().await?);
    if reply.is_accepted() {
        let abort = spdu::Abort { user: true, ..spdu::Abort::default() };
        // The peer may already have closed the connection.
        let _ = line.send_data(&Spdu::Abort(abort).into_rope().to_vec(), tpdu_bytes_max).await;
    }
    Ok(reply)
}

/// Builds the CONNECT that carries the CP and the AARQ.
fn connect_of(target: &Target, proposal: Proposal<'_>) -> Rope {
    let Proposal { application, units, versions } = proposal;
    let selector = |bytes: &[u8]| (!bytes.is_empty()).then(|| bytes.to_vec());
    let syntaxes = std::iter::once(ABSTRACT_SYNTAX).chain(application.syntaxes.iter().map(|(oid, _)| *oid));
    let contexts: Vec<_> = (1..)
        .step_by(2)
        .zip(syntaxes)
        .map(|(id, abstract_syntax)| ContextDefinition { id, abstract_syntax, transfer_syntaxes: vec![BER] })
        .collect();
    let words = (application.first_words)(&target.caller);
    let information = (!words.is_empty()).then(|| vec![External::from(&Pdv::single(3, words))]);
    let aarq = Aarq {
        version: Version::VERSION_1,
        application_context: application.context,
        called_ap_title: None,
        called_ae_qualifier: None,
        called_ap_invocation: None,
        called_ae_invocation: None,
        calling_ap_title: None,
        calling_ae_qualifier: None,
        calling_ap_invocation: None,
        calling_ae_invocation: None,
        requirements: None,
        mechanism: None,
        authentication: None,
        implementation: None,
        user_information: information,
    };
    let user_data = UserData::Full(vec![Pdv::single(1, Apdu::Aarq(aarq).to_rope())]);
    let cp = Cp {
        mode: ModeSelector::NORMAL,
        parameters: Some(CpParameters {
            version: ppdu::Version::VERSION_1,
            calling_selector: None,
            called_selector: selector(target.called.presentation.bytes()),
            contexts: Some(contexts),
            default_context: None,
            requirements: None,
            session_requirements: None,
            user_data: Some(user_data),
        }),
    };
    let synchronises = units.has_any(Units::SYNCHRONISE);
    Spdu::Connect(Box::new(spdu::Connect {
        identifier: spdu::Identifier::default(),
        extended_concatenation: false,
        tsdu_sizes: TsduSizes::default(),
        versions,
        initial_serial: synchronises.then_some(1),
        tokens: TokenSettings::default(),
        units,
        calling: Vec::new(),
        called: target.called.session.bytes().to_vec(),
        overflow: false,
        user_data: cp.to_rope(),
    }))
    .into_rope()
}

/// Decodes an answer as far as possible.
fn read(tsdu: Rope) -> Reply {
    let mut reply = Reply::default();
    match Tsdu::read(tsdu).map(|tsdu| tsdu.first) {
        Ok(Spdu::Accept(accept)) => {
            reply.session = Some(Session::Accept { versions: accept.versions, units: accept.units });
            let bytes = accept.data.data.to_vec();
            match Cpa::read(&bytes) {
                Ok((Cpa { parameters: Some(parameters), .. }, _)) => {
                    reply.results = parameters.results.unwrap_or_default();
                    reply.read_acse(parameters.user_data);
                }
                Ok(_) => reply.fault = Some("presentation answers in X.410 mode".into()),
                Err(rule) => reply.fault = Some(format!("presentation's answer is not a CPA ({rule:?})")),
            }
        }
        Ok(Spdu::Refuse(refuse)) => {
            let reason = refuse.reason.unwrap_or(spdu::RefuseReason::Other(u8::MAX));
            reply.session = Some(Session::Refuse { reason });
            if let Ok((cpr, _)) = Cpr::read(&refuse.data.data.to_vec()) {
                reply.results = cpr.results.unwrap_or_default();
                reply.provider_reason = cpr.reason;
                reply.read_acse(cpr.user_data);
            }
        }
        Ok(Spdu::Abort(abort)) => reply.session = Some(Session::Abort { user: abort.user }),
        Ok(_) => reply.fault = Some("session's answer is not a reply to CONNECT".into()),
        Err(rule) => reply.fault = Some(format!("not a valid SPDU ({rule:?})")),
    }
    reply
}

impl Reply {
    fn read_acse(&mut self, user_data: Option<UserData>) {
        let bytes = match user_data {
            Some(UserData::Simple(rope)) => rope.to_vec(),
            Some(UserData::Full(values)) => match values.into_iter().next() {
                Some(pdv) => pdv.into_octets().to_vec(),
                None => return,
            },
            None => return,
        };
        if let Ok((Apdu::Aare(aare), _)) = Apdu::read(&bytes) {
            self.aare = Some(Box::new(aare));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ACCEPT SPDUs from other implementations: ISODE 8 (FTAM), libiec61850 (MMS), josistack (any
    /// application).
    const ISODE: &str = "0ebe011809041402766d0b10170e313236313132303130303333305a050613010016010214020002c1963180a0038001\
         01a280a53230078001008102510130078001008102510130078001008102510130078001008102510130038001013007\
         800100810251016153305102010ba04c614aa107060528c27b0101a203020100a305a103020100be3328310602510102\
         0101a028a126830204108402003785020780860100a7154e0528c27b05034e0528c27b05014e052b0e05050900000000";
    const LIBIEC61850: &str = "0e8605061301001601021402000234020001c1743172a003800101a26b830400000001a5123007800100810251013007\
         80010081025101614f304d020101a0486146a107060528ca220203a203020100a305a103020100be2f282d020103a028\
         a926800300fde881010582010583010aa416800101810305f100820c03ee1c00000002000040ed18";
    const JOSISTACK: &str = "0e6a05061301001601021402000234020001c1583156a003800101a24f830400000001a5123007800100810251013007\
         8001008102510161333031020101a02c612aa107060528ca220203a203020100a305a103020100be1328110602510102\
         0103a008a80680010180010a";

    fn reply(hex: &str) -> Reply {
        let octets =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex"));
        read(octets.collect::<Vec<u8>>().into())
    }

    #[test]
    fn answers_of_real_peers_are_decoded() {
        for (hex, contexts, application) in [
            (ISODE, &[true, true, true, true, false, true][..], "1.0.8571.1.1"),
            (LIBIEC61850, &[true, true], "1.0.9506.2.3"),
            (JOSISTACK, &[true, true], "1.0.9506.2.3"),
        ] {
            let reply = reply(hex);
            assert!(reply.is_accepted() && reply.fault.is_none(), "{application}: {:?}", reply.fault);
            let results: Vec<bool> = reply.results.iter().map(ContextResult::is_acceptance).collect();
            assert_eq!(results, contexts, "{application}");
            let aare = reply.aare.expect("ACSE answers");
            assert_eq!(aare.application_context.to_string(), application);
            assert_eq!(aare.result, AssociateResult::ACCEPTED);
        }
        let mut report = Report::default();
        files(&Caller::default(), &reply(ISODE), &mut report);
        let words: Vec<&str> = report.findings.iter().map(|finding| &*finding.answer).collect();
        assert!(
            words[0].contains("accepted") && words[2].contains("FTAM-3 (binary), FTAM-1 (text)"),
            "{words:?}"
        );
    }

    #[test]
    fn truncated_answers_do_not_panic() {
        for hex in [ISODE, LIBIEC61850, JOSISTACK] {
            for end in (0..hex.len()).step_by(2) {
                assert!(!reply(&hex[..end]).is_accepted());
            }
        }
    }
}
