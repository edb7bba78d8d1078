//! Tests of `resumption.rs`.

use super::*;

fn settings() -> ReplaySettings {
    ReplaySettings {
        bytes: 400,
        total: 1000,
        events: 10,
        time: Duration::from_secs(60),
    }
}

fn principal() -> Arc<Principal> {
    moongate_testing::principal(1)
}

fn retained(shared: &SharedResumption) -> usize {
    usize::try_from(shared.metrics.clients.replay_bytes.get()).unwrap()
}

fn shared(settings: ReplaySettings) -> Arc<SharedResumption> {
    SharedResumption::new(settings, Arc::new(Metrics::new()))
}

fn text(next: NextEvent) -> String {
    match next {
        NextEvent::Event(event) => String::from_utf8(event.to_vec()).unwrap(),
        NextEvent::Evicted(_) => "lost".to_owned(),
        NextEvent::End => "end".to_owned(),
    }
}

fn id_of_frame(frame: Bytes) -> (u64, u64) {
    let text = String::from_utf8(frame.to_vec()).unwrap();
    parse_id(text.split("id: ").nth(1).unwrap().lines().next().unwrap()).unwrap()
}

#[tokio::test]
async fn ids_of_an_earlier_run_are_known_as_such() {
    let (first, second) = (
        ResumptionBuffer::new(shared(settings()), &principal(), 1),
        ResumptionBuffer::new(shared(settings()), &principal(), 2),
    );
    let (one, _) = first.begin(&RequestId::number(7)).unwrap();
    let (two, _) = second.begin(&RequestId::number(7)).unwrap();
    assert_eq!(first.unanswered(), [(one, RequestId::number(7))]);
    for replay in [&first, &second] {
        let number = if std::ptr::eq(replay, &first) {
            one
        } else {
            two
        };
        for stream in [GET_STREAM, number] {
            let ids = [
                replay.priming_event(stream, Duration::ZERO),
                replay.add(stream, b"{}", false),
            ]
            .map(id_of_frame);
            for id in ids {
                assert!(!replay.is_from_previous_process(id), "{id:?}");
                assert_eq!(
                    second.is_from_previous_process(id),
                    std::ptr::eq(replay, &first),
                    "{id:?}"
                );
                assert!(!first.is_from_previous_process(id), "{id:?}");
            }
        }
    }
    first.add(one, b"[]", true);
    assert!(first.unanswered().is_empty());
    let forgetful = ResumptionBuffer::new(shared(settings()), &principal(), 0);
    assert!(
        !forgetful.is_from_previous_process((GET_STREAM, u64::MAX))
            && !forgetful.is_from_previous_process((1, 0))
    );
}

#[tokio::test]
async fn a_stream_is_read_from_behind_an_event_on() {
    let replay = Arc::new(ResumptionBuffer::new(shared(settings()), &principal(), 0));
    let (one, _) = replay.begin(&RequestId::number(7)).unwrap();
    let (two, _) = replay.begin(&RequestId::number(8)).unwrap();
    assert_eq!(
        &replay.priming_event(one, Duration::from_secs(1))[..],
        b"id: 1-0\nretry: 1000\ndata: \n\n"
    );
    assert_eq!(
        &replay.add(one, b"{}", false)[..],
        b"event: message\nid: 1-1\ndata: {}\n\n"
    );
    replay.add(two, b"[2]", false);
    replay.add(one, b"[1]", true);
    let mut reader = replay.read(one, 1).unwrap();
    assert_eq!(
        text(reader.next().await),
        "event: message\nid: 1-2\ndata: [1]\n\n",
        "its own stream's only"
    );
    assert_eq!(text(reader.next().await), "end");
    // An event that was never sent cannot have been received.
    assert!(replay.read(one, 3).is_none() && replay.read(9, 0).is_none());
    // A later reader continues, and the one before it ends.
    let mut first = replay.read(two, 1).unwrap();
    let mut second = replay.read(two, 1).unwrap();
    assert_eq!(text(first.next().await), "end");
    replay.add(two, b"[3]", true);
    assert!(text(second.next().await).contains("[3]"));
    assert_eq!(text(second.next().await), "end");
}

#[tokio::test]
async fn evicted_events_are_reported_as_evicted() {
    let shared = shared(settings());
    let replay = Arc::new(ResumptionBuffer::new(shared.clone(), &principal(), 0));
    let large = vec![b'1'; 401];
    let (number, _) = replay.begin(&RequestId::number(7)).unwrap();
    replay.add(number, b"0", false);
    replay.add(number, &large, true);
    let mut reader = replay.read(number, 0).unwrap();
    assert!(text(reader.next().await).contains("data: 0"));
    assert_eq!(text(reader.next().await), "lost");
    assert_eq!(text(reader.next().await), "end");
    // The response was retained, and evicted for later ones.
    let (old, _) = replay.begin(&RequestId::number(8)).unwrap();
    replay.add(old, b"8", true);
    let (new, _) = replay.begin(&RequestId::number(9)).unwrap();
    for _ in 0..20 {
        replay.add(new, b"9", false);
    }
    assert_eq!(text(replay.read(old, 0).unwrap().next().await), "lost");
    // A client that already has the response gets no error.
    assert_eq!(text(replay.read(old, 1).unwrap().next().await), "end");
    assert!(replay.events.lock().bytes <= 400 && replay.events.lock().order.len() <= 10);
    assert_eq!(retained(&shared), replay.events.lock().bytes);
}

#[tokio::test(start_paused = true)]
async fn all_sessions_share_one_total_and_give_it_back() {
    let shared = shared(ReplaySettings {
        total: 500,
        ..settings()
    });
    let sessions: Vec<_> = (0..4)
        .map(|_| Arc::new(ResumptionBuffer::new(shared.clone(), &principal(), 0)))
        .collect();
    for replay in &sessions {
        let (number, _) = replay.begin(&RequestId::number(1)).unwrap();
        for _ in 0..5 {
            replay.add(number, &[b'1'; 50], false);
        }
        replay.end(number);
        assert!(retained(&shared) <= 500);
    }
    tokio::time::advance(Duration::from_secs(61)).await;
    sessions[0].evict_expired();
    assert!(sessions[0].events.lock().streams.is_empty());
    // The session's GET stream never ends, but its events expire too.
    sessions[0].add(GET_STREAM, b"{}", false);
    assert!(sessions[0].get_stream_event(0).is_some());
    tokio::time::advance(Duration::from_secs(61)).await;
    sessions[0].evict_expired();
    assert!(sessions[0].get_stream_event(0).is_none() && sessions[0].get_stream_position() == 1);
    assert_eq!(sessions[0].events.lock().bytes, 0);
    drop(sessions);
    assert_eq!(retained(&shared), 0);
    assert_eq!(shared.metrics.clients.replay_bytes.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn unread_streams_expire() {
    let replay = Arc::new(ResumptionBuffer::new(shared(settings()), &principal(), 0));
    let (number, live) = replay.begin(&RequestId::number(1)).unwrap();
    replay.mark_unread(number, &live);
    let start = Instant::now();
    replay.clone().expire_unread(number).await;
    assert!((60..63).contains(&start.elapsed().as_secs()));
    assert!(replay.read(number, 0).is_none());
    // A stream with a reader does not expire.
    let (number, live) = replay.begin(&RequestId::number(2)).unwrap();
    replay.mark_unread(number, &live);
    let reader = replay.read(number, 0).unwrap();
    let waiting = tokio::time::timeout(
        Duration::from_secs(300),
        replay.clone().expire_unread(number),
    );
    assert!(waiting.await.is_err());
    drop(reader);
    replay.clone().expire_unread(number).await;
}

#[test]
fn ids_name_a_stream_and_an_event() {
    assert_eq!(parse_id("3-17"), Some((3, 17)));
    for id in [
        "",
        "3",
        "-",
        "3-",
        "-3",
        "+3-1",
        "3-1-2",
        " 3-1",
        "x-1",
        "99999999999999999999-1",
    ] {
        assert_eq!(parse_id(id), None, "{id:?}");
    }
}

#[test]
fn a_session_has_so_many_streams() {
    let replay = ResumptionBuffer::new(shared(settings()), &principal(), 0);
    for n in 0..STREAMS_MAX as u64 {
        replay.begin(&RequestId::number(n)).unwrap();
    }
    assert!(replay.begin(&RequestId::number(0)).is_none());
    replay.end(5);
    assert!(
        replay.begin(&RequestId::number(0)).is_some(),
        "one that ended makes room"
    );
    assert!(
        replay.events.lock().streams.len() == STREAMS_MAX
            && !replay.events.lock().streams.contains_key(&5)
    );
}
