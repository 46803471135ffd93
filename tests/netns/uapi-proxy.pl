#!/usr/bin/env perl
# Stands between a command and a daemon's socket: usage uapi-proxy.pl SOCKET DAEMON'S-SOCKET HOW FOLDER.
#
# A request to change something is a file `asked` in FOLDER, and then, by HOW,
#   hold           waits there for a file `go`, and is passed on however long that took
#   kill-before    kills who asks
#   kill-after     passes it on, and kills who asks with the answer
use strict;
use warnings;
use IO::Socket::UNIX;
use Socket qw(SOL_SOCKET);

my ($path, $to, $how, $folder) = @ARGV;
my $SO_PEERCRED = 17;
$SIG{CHLD} = 'IGNORE';
my $socket = IO::Socket::UNIX->new(Local => $path, Listen => 16) or die "$path: $!\n";

sub wait_for { select(undef, undef, undef, 0.01) until -e $_[0] }

while (my $client = $socket->accept) {
  next if fork;
  # Who asked may have given up.
  $SIG{PIPE} = 'IGNORE';
  my ($pid) = unpack('i', getsockopt($client, SOL_SOCKET, $SO_PEERCRED));
  my $daemon = IO::Socket::UNIX->new(Peer => $to) or exit 1;
  local $/ = "\n\n";
  while (my $request = <$client>) {
    my $changes = $request =~ /^set=1/;
    if ($changes) {
      open(my $asked, '>', "$folder/asked") or die "$folder/asked: $!\n";
      wait_for("$folder/go") if $how eq 'hold';
      if ($how eq 'kill-before') {
        kill('KILL', $pid);
        exit 0;
      }
    }
    print $daemon $request;
    my $answer = <$daemon> // last;
    kill('KILL', $pid) if $changes && $how eq 'kill-after';
    print $client $answer;
  }
  exit 0;
}
