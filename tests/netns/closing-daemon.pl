#!/usr/bin/env perl
# A daemon for scenarios that carries no packets: usage closing-daemon.pl IFACE.
#
# It treats its clients as boringtun does: one reply to a connection, which it then closes, and no private key in it.
# Each request is appended to the file REQUESTS, each reply's private key is left out. It is started as wireguard-go is:
# it goes to the background as soon as it answers.
use strict;
use warnings;
use IO::Select;
use IO::Socket::UNIX;

my $name = $ARGV[0];
my $path = "/run/wireguard/$name.sock";
my $requests = $ENV{REQUESTS} or die "REQUESTS is not set\n";

# TUNSETIFF with IFF_TUN | IFF_NO_PI (linux/if_tun.h): the interface goes with this process.
open(my $tun, '+<', '/dev/net/tun') or die "/dev/net/tun: $!\n";
my $interface = pack('Z16 S x22', $name, 0x1001);
ioctl($tun, 0x400454ca, $interface) or die "$name: $!\n";
mkdir '/run/wireguard';
unlink $path;
my $socket = IO::Socket::UNIX->new(Local => $path, Listen => 16) or die "$path: $!\n";
exit 0 if fork;
open(STDIN, '<', '/dev/null');
open(STDOUT, '>', '/dev/null');

my ($port, %peers) = (0);
sub answer {
  my @lines = @_;
  my $what = shift @lines;
  if ($what eq 'get=1') {
    my $text = "listen_port=$port\n";
    for my $key (sort keys %peers) {
      my $peer = $peers{$key};
      $text .= "public_key=$key\n";
      $text .= "endpoint=$peer->{endpoint}\n" if $peer->{endpoint};
      $text .= "allowed_ip=$_\n" for @{ $peer->{allowed_ips} };
      $text .= "rx_bytes=0\ntx_bytes=0\n";
    }
    return $text . "errno=0\n\n";
  }
  return undef unless $what eq 'set=1';
  my $peer;
  for (@lines) {
    my ($key, $value) = split /=/, $_, 2;
    %peers = () if $key eq 'replace_peers';
    $port = $value if $key eq 'listen_port';
    $peer = $peers{$value} //= { allowed_ips => [] } if $key eq 'public_key';
    $peer->{endpoint} = $value if $key eq 'endpoint';
    $peer->{allowed_ips} = [] if $key eq 'replace_allowed_ips';
    push @{ $peer->{allowed_ips} }, $value if $key eq 'allowed_ip';
  }
  return "errno=0\n\n";
}

my $events = IO::Select->new($tun, $socket);
while (my @ready = $events->can_read) {
  if (grep { $_ == $tun } @ready) {
    # A packet, which goes nowhere, or the end of the interface.
    next if defined sysread($tun, my $packet, 65536);
    unlink $path;
    exit 0;
  }
  my $client = $socket->accept or next;
  my @lines;
  while (my $line = <$client>) {
    chomp $line;
    last if $line eq '';
    push @lines, $line;
  }
  next unless @lines;
  open(my $log, '>>', $requests) or die "$requests: $!\n";
  print $log "$_\n" for @lines;
  close $log;
  my $reply = answer(@lines);
  print $client $reply if defined $reply;
  close $client;
}
