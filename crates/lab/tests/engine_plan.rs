//! Plans: parsing, order of points, and error messages.

mod engine_common;

use engine_common::Toy;
use kiban_lab::engine::{Plan, Time, Value, questions};

fn read(text: &str) -> Result<Plan, Vec<String>> {
    let toy = Toy::new(Time::Virtual);
    Plan::read(text, &[&toy]).map_err(|mistakes| mistakes.iter().map(ToString::to_string).collect())
}

#[test]
fn a_plan_has_a_value_a_list_or_a_range_for_each_parameter() {
    let text = r#"
        question = "toy"
        seeds = [7, 8]
        [parameters]
        across = { from = 1, to = 5, step = 2 }
        down = { from = 0.1, to = 0.35, step = 0.1 }
        nodelay = [false, true]
        word = "a"
    "#;
    let plan = read(text).expect("it is good");
    let counts = |values: &[u64]| values.iter().map(|count| Value::Count(*count)).collect::<Vec<_>>();
    assert_eq!(plan.parameters["across"], counts(&[1, 3, 5]));
    let figures = [0.1, 0.2, 0.3].map(Value::Figure);
    assert_eq!(plan.parameters["down"], figures, "no 0.30000000000000004");
    assert_eq!((plan.points(), plan.trials()), (3 * 3 * 2, 3 * 3 * 2 * 2));
    // Seeds vary faster than the last varying parameter, which varies faster than the parameters before it.
    let places: Vec<String> = (0..5)
        .map(|number| plan.trial(number))
        .map(|trial| format!("{} {}", trial.point, trial.seed))
        .collect();
    assert_eq!(
        places,
        [
            "across=1 down=0.1 nodelay=false word=a 7",
            "across=1 down=0.1 nodelay=false word=a 8",
            "across=1 down=0.1 nodelay=true word=a 7",
            "across=1 down=0.1 nodelay=true word=a 8",
            "across=1 down=0.2 nodelay=false word=a 7",
        ]
    );
    assert_eq!(plan.trial(plan.trials() - 1).point.to_string(), "across=5 down=0.3 nodelay=true word=a");
}

#[test]
fn ranges_end_where_they_say() {
    for (range, expected) in [
        ("{ from = 500, to = 2000, times = 2 }", "500 1000 2000"),
        ("{ from = 1, to = 9, times = 3 }", "1 3 9"),
        ("{ from = 1, to = 8, times = 3 }", "1 3"),
        ("{ from = 1, to = 3, times = 1.2 }", "1 2 3"),
        ("{ from = 4, to = 4, step = 1 }", "4"),
        ("{ from = 0, to = 1000000000000000, step = 500000000000000 }", "0 500000000000000 1000000000000000"),
        ("0x10", "16"),
    ] {
        let plan = read(&format!("question = \"toy\"\nparameters = {{ word = \"a\", across = {range} }}"));
        let values = &plan.unwrap_or_else(|mistakes| panic!("{range}: {mistakes:?}")).parameters["across"];
        let text: Vec<String> = values.iter().map(Value::to_string).collect();
        assert_eq!(text.join(" "), expected, "{range}");
    }
    let plan =
        read("question = \"toy\"\nparameters = { word = \"a\", down = { from = -1, to = 1, step = 0.5 } }");
    let values = &plan.expect("figures may be negative").parameters["down"];
    assert_eq!(values.len(), 5);
    assert_eq!(values[0], Value::Figure(-1.0));
}

#[test]
fn missing_parameters_have_their_defaults() {
    let plan = read("question = \"toy\"\nparameters.word = \"a\"").expect("it is good");
    assert_eq!((plan.seeds.as_slice(), plan.repetitions, plan.trials()), (&[1][..], 1, 1));
    assert_eq!(plan.trial(0).point.to_string(), "across=1 down=0.5 nodelay=false word=a");
}

#[test]
fn errors_have_a_line_and_a_suggestion() {
    let begin = "question = \"toy\"\n";
    let with = |lines: &str| format!("{begin}[parameters]\nword = \"a\"\n{lines}");
    for (text, expected) in [
        (String::new(), "line 1: missing key 'question'; expected one of: toy"),
        ("question = \"toi\"".into(), "line 1: unknown question 'toi'; did you mean 'toy'?"),
        (
            "question = \"wide-area-atm\"".into(),
            "line 1: unknown question 'wide-area-atm'; expected one of: toy",
        ),
        ("\n\nquestion = 3".into(), "line 3: the question must be a string in quotes"),
        (
            format!("{begin}\nrepititions = 2\nparameters.word = \"a\""),
            "line 3: unknown key 'repititions'; did you mean 'repetitions'?",
        ),
        (with("acros = 3"), "line 4: unknown toy parameter 'acros'; did you mean 'across'?"),
        (
            with("zzz = 3"),
            "line 4: unknown toy parameter 'zzz'; expected one of: across, down, nodelay, word",
        ),
        (with("across = 1.5"), "line 4: across must be an integer of at least 0"),
        (with("across = -1"), "line 4: across must be an integer of at least 0"),
        (with("across = [1,\n2,\n\"three\"]"), "line 6: across must be an integer of at least 0"),
        (with("down = inf"), "line 4: down must be a number"),
        (with("nodelay = 1"), "line 4: nodelay must be true or false"),
        (with("across = []"), "line 4: across has no values: give at least one"),
        (with("across = [1, 2, 1]"), "line 4: across has the value 1 more than once"),
        (
            with("across = { from = 1, to = 3 }"),
            "line 4: across: a range must be { from, to, step } or { from, to, times }",
        ),
        (
            with("across = { from = 1, to = 3, stepp = 1, step = 1 }"),
            "line 4: unknown key in the range of across 'stepp'; did you mean 'step'?",
        ),
        (
            with("across = { from = 3, to = 1, step = 1 }"),
            "line 4: across: invalid range: it requires 'from' <= 'to'",
        ),
        (
            with("across = { from = 1, to = 3, step = 0 }"),
            "line 4: across: invalid range: it requires 'from' <= 'to'",
        ),
        (
            with("across = { from = 0, to = 3, times = 2 }"),
            "line 4: across: invalid range: it requires 0 < 'from'",
        ),
        (
            with("across = { from = 1, to = 1e9, step = 1 }"),
            "line 4: across: the range has more than 100,000",
        ),
        (
            with("across = { from = 1, to = 2, times = 1.0000001 }"),
            "line 4: across: the range has more than 100,000",
        ),
        (
            with("across = { from = 0.5, to = 2, step = 1 }"),
            "line 4: across: the range contains values that are not integers",
        ),
        (
            format!("{begin}[parameters]\nword = {{ from = 1, to = 2, step = 1 }}"),
            "line 3: word must be a string in quotes, for which ranges",
        ),
        (format!("{begin}parameters = 3"), "line 2: parameters must be a table: [parameters]"),
        (begin.into(), "line 1: missing parameter word: for tests"),
        (with("across = = 3"), "line 4: "),
        (
            format!("{begin}seed = 1\nseeds = [2]\nparameters.word = \"a\""),
            "line 3: both 'seed' and 'seeds' are given",
        ),
        (
            format!("{begin}repetitions = 0\nparameters.word = \"a\""),
            "line 2: repetitions must be an integer from 1",
        ),
        (
            format!("{begin}repetitions = 2\nparameters.word = \"a\""),
            "line 2: toy runs in virtual time, where",
        ),
        (
            with("across = { from = 0, to = 99999, step = 1 }\ndown = { from = 0, to = 99999, step = 1 }\n")
                .replace("[parameters]", "seeds = { from = 0, to = 99999, step = 1 }\n[parameters]")
                .replace("\"a\"", &format!("{:?}", (0..20_000).map(|n| n.to_string()).collect::<Vec<_>>())),
            "line 1: too many trials",
        ),
    ] {
        let mistakes = read(&text).expect_err(&text);
        assert!(mistakes[0].starts_with(expected), "{text}\n{mistakes:?}");
    }
}

#[test]
fn all_errors_are_reported_at_once_in_line_order() {
    let text = "quetsion = 1\nquestion = \"toy\"\n[parameters]\nacross = \"a\"\nword = 3\nnodely = true";
    let lines: Vec<String> =
        read(text).expect_err("there are four").iter().map(|line| line[..6].into()).collect();
    assert_eq!(lines, ["line 1", "line 4", "line 5", "line 6"]);
}

#[test]
fn impossible_points_are_reported_before_anything_runs() {
    let toy = Toy::new(Time::Virtual);
    let plan = toy.plan("question = \"toy\"\n[parameters]\nword = \"a\"\nacross = [12, 13]\ndown = [1, 2]");
    let what = plan.validate(&toy).expect_err("13 is impossible");
    assert!(what.starts_with("2 of 4 points are impossible:\n  across=13 down=1 "), "{what}");
    assert!(what.contains("across is never 13: take 12") && !what.contains('…'), "{what}");
    assert_eq!(toy.asked(), 0);
    let plan = toy.plan("question = \"toy\"\n[parameters]\nword = \"a\"\nacross = 12");
    assert_eq!(plan.validate(&toy), Ok(()));
}

#[test]
fn a_difference_is_named() {
    let toy = Toy::new(Time::Real);
    let plan = |more: &str| toy.plan(&format!("question = \"toy\"\n{more}\nparameters.word = \"a\""));
    for (other, expected) in [
        ("", None),
        ("seed = 2", Some("the seeds")),
        ("repetitions = 2", Some("the repetitions")),
        ("parameters.across = 2", Some("the parameter across")),
        // The same plan in another notation.
        ("seeds = [1]\nparameters.across = [1]", None),
    ] {
        assert_eq!(plan("").difference(&plan(other)).as_deref(), expected, "{other}");
    }
}

/// `kiban lab questions NAME` works for each question, and each satisfies the contract of the trait.
#[test]
fn every_question_accepts_its_defaults_or_says_why_not() {
    let mut names = Vec::new();
    for question in questions::all() {
        names.push(question.name());
        assert!(!question.what().is_empty() && !question.metrics().is_empty(), "{}", question.name());
        let mut parameters: Vec<&str> =
            question.parameters().iter().map(|parameter| parameter.name).collect();
        parameters.sort_unstable();
        parameters.dedup();
        assert_eq!(
            parameters.len(),
            question.parameters().len(),
            "{}: a name is taken twice",
            question.name()
        );
        if question.parameters().iter().all(|parameter| parameter.default.is_some()) {
            let text = format!("question = \"{}\"", question.name());
            let plan = Plan::read(&text, &questions::all()).expect("defaults are a plan");
            assert_eq!(plan.validate(question), Ok(()), "{}", question.name());
        }
    }
    assert!(names.contains(&"wide-area-atm") && names.contains(&"atm-board"), "{names:?}");
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), questions::all().len(), "a name is taken twice");
}
