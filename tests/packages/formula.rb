# Reads a formula as Homebrew would on each system, without Homebrew, and prints what it found.
#
#     ruby formula.rb moongate.rb darwin|linux arm64|x64
#
# A line for the archive (`archive darwin arm64 URL SUM`), for each file that `install` takes out of
# its folder (`file PATH`), and for the words of the service (`service WORDS`).

FORMULA = ARGV.fetch(0)
SYSTEM, MACHINE = ARGV[1], ARGV[2]

# Prints what is installed from the archive's folder.
class InstallFolder
  def install(*names)
    files = names.flat_map { |name| name.is_a?(Hash) ? name.keys : [name] }
    files.each { |file| puts "file #{file}" }
  end

  def /(other)
    "prefix/#{other}"
  end
end

# The block `service`.
class ServiceBlock
  def run(words)
    puts "service #{words.join(" ")}"
  end

  def keep_alive(**) = nil
  def environment_variables(**) = nil
  def log_path(path) = path
  def error_log_path(path) = path
  def std_service_path_env = "PATH"
  def opt_bin = InstallFolder.new
  def var = InstallFolder.new
end

# What a formula may say. A word that isn't here is an error.
class Formula
  class << self
    attr_reader :found

    def inherited(child)
      super
      child.instance_variable_set(:@found, {})
    end

    def value(name, *values)
      values.empty? ? found.fetch(name) : found[name] = values.first
    end

    %i[desc homepage version license url sha256].each do |name|
      define_method(name) { |*values| value(name, *values) }
    end

    def on_macos = (yield if SYSTEM == "darwin")
    def on_linux = (yield if SYSTEM == "linux")
    def on_arm = (yield if MACHINE == "arm64")
    def on_intel = (yield if MACHINE == "x64")

    def service(&block)
      ServiceBlock.new.instance_eval(&block)
    end

    def test
      raise "no block" unless block_given?
    end
  end

  %i[bin bash_completion zsh_completion fish_completion man1].each do |name|
    define_method(name) { InstallFolder.new }
  end
end

load FORMULA
found = Moongate.found
puts "archive #{SYSTEM} #{MACHINE} #{found[:url]} #{found[:sha256]}"
puts "version #{found[:version]}"
Moongate.new.install
