# The words of these scenarios are those of ../netns/lib.sh, and these.
source "$(dirname "${BASH_SOURCE[0]}")/../netns/lib.sh"
need iperf3

# The lab covers /run with a place of its own, so its files are elsewhere.
FILES=/mnt
mount -t tmpfs tmpfs "$FILES"

# The lab, with its progress and its words in the log.
lab() { "$LINERATE" lab "$@" --linerated "$TUNNEL_DAEMON"; }

# The median of a measure in a record; `check_record` fails when the record does not fit its schema.
median() { # RECORD SCENARIO SUBJECT MEASURE
  (cd "$REPO" && "$EXAMPLES/check_record" "$@")
}
